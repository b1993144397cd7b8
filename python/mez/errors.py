"""All exceptions of Mez, as one tree.

```text
Error
├── ArgumentError               (ValueError)       an argument has a bad value; `field` names it
├── ArgumentTypeError           (TypeError)        an argument has the wrong type
├── ImageError                  (ValueError)       pixels or bytes that are no image, or a damaged one
├── DataError                   (ValueError)       a record that is not what its content type says
├── PublishError                                   a frame was refused; nothing of it was kept
│   ├── FrameTooLargeError      (ValueError)       more bytes than the limit
│   ├── CaptureTimeError        (ValueError)       a capture time that is not after the last one
│   └── LogFullError                               readers hold the whole log
├── ReplyTooLargeError          (ValueError)       a reply of more than 64 KiB
├── KeysError                                      no keys, or keys that do not fit, or have expired
├── StateError                                     the folder for state cannot be used
│   └── CameraInUseError                           a broker of this camera runs on this machine already
├── ListenError                 (OSError)          a port or a socket cannot be listened on
├── BrokerError                                    a broker refused; `reason` is a stable name for why
│   ├── NotFoundError           (LookupError)      no such camera, profile or subscription
│   ├── PermissionDenied        (PermissionError)  no grant allows it; the message names the grant
│   ├── InfeasibleError                            bounds that cannot be held, with on_infeasible="stop"
│   ├── NotOnDiskError                          a record is published, and not known to be on the edge's disk
│   ├── BusyError                                  as many subscriptions as the broker allows
│   └── VersionError                               the two sides do not speak a common version
├── ConnectError                (ConnectionError)  a broker cannot be reached, or the connection was lost
├── WaitTimeoutError            (TimeoutError)     the time given for waiting has passed
├── EndedError                                     there is nothing more to come: it has ended, or was closed
├── ForkedError                 (RuntimeError)     used in a forked process, made in its parent
└── MissingPackageError         (ImportError)      a package that only this call needs is not installed
```

Every message says what happened, and after a semicolon what to do.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mez._frame_id import FrameId

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "BrokerError",
    "BusyError",
    "CameraInUseError",
    "CaptureTimeError",
    "ConnectError",
    "DataError",
    "EndedError",
    "Error",
    "ForkedError",
    "FrameTooLargeError",
    "ImageError",
    "InfeasibleError",
    "KeysError",
    "ListenError",
    "LogFullError",
    "MissingPackageError",
    "NotFoundError",
    "NotOnDiskError",
    "PermissionDenied",
    "PublishError",
    "ReplyTooLargeError",
    "StateError",
    "VersionError",
    "WaitTimeoutError",
]


class Error(Exception):
    """Whatever Mez raises.

    Attributes:
        field: The argument at fault, by its name in Python, where one is.
    """

    field: str | None = None

    @property
    def remedy(self) -> str | None:
        """What to do about it: the part of the message after its last semicolon, where there is one."""
        _, separator, remedy = str(self).rpartition("; ")
        return remedy if separator else None


class ArgumentError(Error, ValueError):
    """An argument makes no sense, and will not the next time either. `field` names it."""


class ArgumentTypeError(Error, TypeError):
    """An argument has a type that means nothing there. `field` names it."""


class ImageError(Error, ValueError):
    """Pixels or bytes that are no image that Mez takes, or a damaged image."""


class DataError(Error, ValueError):
    """A data record whose bytes are not what its content type says."""


class PublishError(Error):
    """A frame was refused. Nothing of it was kept, and the next one is judged on its own."""


class FrameTooLargeError(PublishError, ValueError):
    """A frame has more bytes than the limit.

    Attributes:
        size_bytes: The frame's size, encoded.
        size_bytes_max: The limit.
    """

    size_bytes: int
    size_bytes_max: int


class CaptureTimeError(PublishError, ValueError):
    """A capture time was given that is not after that of the last frame.

    Attributes:
        captured_ns: The time that was refused, in nanoseconds since 1970-01-01 UTC.
        last_captured_ns: That of the last frame.
    """

    captured_ns: int
    last_captured_ns: int


class LogFullError(PublishError):
    """Readers hold so much of the camera's log that the frame has no room."""


class ReplyTooLargeError(Error, ValueError):
    """A reply has more than 64 KiB."""


class KeysError(Error):
    """There are no keys, or they do not fit, are damaged, or have expired."""


class StateError(Error):
    """The folder for what outlives a program cannot be used, or the program runs on this host already."""


class CameraInUseError(StateError):
    """A broker of this camera runs on this machine already."""


class ListenError(Error, OSError):
    """A port or a socket cannot be listened on; most often because somebody else listens there."""


class BrokerError(Error):
    """A broker said no.

    Attributes:
        reason: The broker's stable name for why, such as `INVALID_PATTERN`; empty where it gave none.
    """

    reason: str = ""


class NotFoundError(BrokerError, LookupError):
    """The broker knows no such camera, profile or subscription."""


class PermissionDenied(BrokerError, PermissionError):  # noqa: N818, as everybody calls it
    """No grant allows this program what it asked for, or not any more.

    The message names the grant that is missing, and the command that gives it on the edge's host.
    """


class InfeasibleError(BrokerError):
    """The bounds of a subscription cannot be held, and it asked to end then (`on_infeasible="stop"`).

    The message says what the link carries, and what would be needed.
    """


class NotOnDiskError(BrokerError):
    """A record is published, and not known to be on the edge's disk.

    `reason` says what to do: `LOG_DEGRADED` (the disk is full, fails or is slow): the record is in the
    stream, so wait for it again with `Publisher.wait_on_disk`; `RECORD_LOST`: publish it again; `NO_STORE`:
    the edge keeps no logs on disk; `TOO_MANY_AWAITED`: ask again a moment later.

    Attributes:
        frame: The record, as `Publisher.send_data` would have returned it.
    """

    frame: "FrameId"


class BusyError(BrokerError):
    """The broker has as many subscriptions, calls or connections as it allows this program, or all."""


class VersionError(BrokerError):
    """The two sides do not speak a common version."""


class ConnectError(Error, ConnectionError):
    """A broker cannot be reached, or the connection to it was lost."""


class WaitTimeoutError(Error, TimeoutError):
    """The time that was given for waiting has passed. What was waited for may still come: ask again."""


class EndedError(Error):
    """There is nothing more to come: it has ended, or it was closed."""


class ForkedError(Error, RuntimeError):
    """An object was used in a forked process that its parent made.

    Threads do not survive a fork, and the object's work is done by threads. Make it in the process that
    uses it, or start processes with `multiprocessing.get_context("spawn")`.
    """


class MissingPackageError(Error, ImportError):
    """A package is not installed that this call needs. Mez itself does without; the message says which."""
