"""All exceptions of Mez, as one tree.

```text
Error
├── ArgumentError               (ValueError)       an argument has an invalid value; `field` names it
├── ArgumentTypeError           (TypeError)        an argument has the wrong type
├── ImageError                  (ValueError)       pixels or bytes that are not an image, or are damaged
├── DataError                   (ValueError)       a record does not fit its content type
├── PublishError                                   a frame was refused; nothing of it was kept
│   ├── FrameTooLargeError      (ValueError)       more bytes than the limit
│   ├── CaptureTimeError        (ValueError)       a capture time that is not later than the previous one
│   └── LogFullError                               no room in the log: readers still use all of it
├── ReplyTooLargeError          (ValueError)       a reply of more than 64 KiB
├── KeysError                                      keys are missing, do not fit, or have expired
├── StateError                                     the folder for state cannot be used
│   └── CameraInUseError                           another broker of this camera runs on this host
├── ListenError                 (OSError)          a port or a socket cannot be opened
├── BrokerError                                    a broker refused; `reason` is a stable name of the cause
│   ├── NotFoundError           (LookupError)      no such camera, profile or subscription
│   ├── PermissionDenied        (PermissionError)  no grant allows it; the message names the grant
│   ├── InfeasibleError                            the bounds cannot be kept, with on_infeasible="stop"
│   ├── NotOnDiskError                             a record is published, but maybe not on the edge's disk
│   ├── BusyError                                  a limit of the broker was reached
│   └── VersionError                               client and broker have no version in common
├── ConnectError                (ConnectionError)  a broker is unreachable, or the connection was lost
├── WaitTimeoutError            (TimeoutError)     a wait took longer than its limit
├── EndedError                                     the object has ended or was closed
├── ForkedError                 (RuntimeError)     the object was made before a fork, in the parent process
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
    """The base class of all exceptions of Mez.

    Attributes:
        field: The name of the wrong argument. `None` if the error has another cause.
    """

    field: str | None = None

    @property
    def remedy(self) -> str | None:
        """What to do: the part of the message after its last semicolon. `None` if there is none."""
        _, separator, remedy = str(self).rpartition("; ")
        return remedy if separator else None


class ArgumentError(Error, ValueError):
    """An argument has an invalid value. The same call will fail again. `field` names the argument."""


class ArgumentTypeError(Error, TypeError):
    """An argument has the wrong type. `field` names the argument."""


class ImageError(Error, ValueError):
    """Pixels or bytes that are not an image that Mez can use, or a damaged image."""


class DataError(Error, ValueError):
    """A data record whose bytes do not fit its content type."""


class PublishError(Error):
    """A frame was refused. Nothing of it was kept. You can send the next frame."""


class FrameTooLargeError(PublishError, ValueError):
    """A frame has more bytes than the limit.

    Attributes:
        size_bytes: The size of the encoded frame, in bytes.
        size_bytes_max: The limit, in bytes.
    """

    size_bytes: int
    size_bytes_max: int


class CaptureTimeError(PublishError, ValueError):
    """A capture time is not later than that of the previous frame.

    Attributes:
        captured_ns: The time that was refused, in nanoseconds since 1970-01-01 UTC.
        last_captured_ns: The capture time of the previous frame, in nanoseconds since 1970-01-01 UTC.
    """

    captured_ns: int
    last_captured_ns: int


class LogFullError(PublishError):
    """There is no room for the frame in the camera's log, because readers still use all of it."""


class ReplyTooLargeError(Error, ValueError):
    """A reply has more than 64 KiB."""


class KeysError(Error):
    """Keys are missing, do not fit, are damaged, or have expired."""


class StateError(Error):
    """The folder for state cannot be used, or the same program runs on this host already."""


class CameraInUseError(StateError):
    """Another broker of this camera runs on this host."""


class ListenError(Error, OSError):
    """A port or a socket cannot be opened. Usually another program uses it."""


class BrokerError(Error):
    """A broker refused the request.

    Attributes:
        reason: A stable name of the cause, such as `INVALID_PATTERN`. Empty if there is none.
    """

    reason: str = ""


class NotFoundError(BrokerError, LookupError):
    """The broker knows no such camera, profile or subscription."""


class PermissionDenied(BrokerError, PermissionError):  # noqa: N818, as everybody calls it
    """No grant allows this program what it requested, or a grant was withdrawn.

    The message names the missing grant, and the command that gives it on the edge's host.
    """


class InfeasibleError(BrokerError):
    """The bounds of a subscription cannot be kept, and it has `on_infeasible="stop"`.

    The message gives the rate of the link, and the rate that would be needed.
    """


class NotOnDiskError(BrokerError):
    """A record was published, but is maybe not on the edge's disk.

    `reason` says what to do. `LOG_DEGRADED`: the disk is full, fails or is slow. The record is in the stream:
    wait for it again with `Publisher.wait_on_disk`. `RECORD_LOST`: publish the record again. `NO_STORE`: the
    edge keeps no logs on disk. `TOO_MANY_AWAITED`: wait a moment, then try again.

    Attributes:
        frame: The record, as `Publisher.send_data` would have returned it.
    """

    frame: "FrameId"


class BusyError(BrokerError):
    """The broker's limit of subscriptions, calls or connections is reached, for this program or in total."""


class VersionError(BrokerError):
    """Client and broker have no version of the interface in common."""


class ConnectError(Error, ConnectionError):
    """A broker is unreachable, or the connection to it was lost."""


class WaitTimeoutError(Error, TimeoutError):
    """A wait took longer than its limit. What you waited for may still come: call again."""


class EndedError(Error):
    """The object has ended or was closed. Nothing more comes from it."""


class ForkedError(Error, RuntimeError):
    """An object was used in a forked process, but its parent process made it.

    The object needs threads, and threads do not survive a fork. Create it in the process that uses it, or
    start processes with `multiprocessing.get_context("spawn")`.
    """


class MissingPackageError(Error, ImportError):
    """A package is not installed that only this call needs. The message names it."""
