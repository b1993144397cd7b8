"""Mez delivers camera frames to vision applications on time.

Publish, on the camera's host:

```python
with mez.publisher("dock/cam1", edge="edge.local") as cam:
    cam.send(image)
```

Subscribe, in the application:

```python
for frame in mez.subscribe("dock/*", latency_ms=100, accuracy=0.95, profile="pedestrian-hog-vtest"):
    frame.reply(detect(frame.image))
```

| function | what it does |
| --- | --- |
| `read` | returns frames of the past |
| `notes` | returns notes about a camera: replies, and states of contracts and the source |
| `join` | returns frames together with the records that were made of them |
| `offload` | sends frames to an engine, and returns the pictures that it makes of them |
| `cameras` | lists cameras |
| `edge` | runs an edge broker in this process |
| `rungs` | lists the ways in which a camera can encode frames |

`mez.errors` contains all exceptions. Brokers log to the logger `mez` of `logging`.

Objects do not survive `os.fork`: in the child process they raise `ForkedError`. Create new ones there.
"""

from mez._answers import Answer, AnswerCounts, Answers
from mez._data import Origin
from mez._detections import Detections
from mez._edge import CameraInfo, ContractStanding, Edge, cameras, edge, forget_camera
from mez._frame import Contract, ContractState, Frame, NotHeld
from mez._frame_id import FrameId
from mez._join import Join, JoinCounts, Pair, Stray, join
from mez._knobs import Knob, Knobs, knob
from mez._native import __version__
from mez._notes import Note, notes
from mez._overlay import Overlay
from mez._publisher import Publisher, Reply, publisher
from mez._rungs import rungs
from mez._source import Source, SourceState
from mez._subscribe import read, subscribe
from mez._subscription import Event, ReplyCounts, Subscription
from mez._trace import Trace
from mez.errors import (
    ArgumentError,
    ArgumentTypeError,
    BrokerError,
    BusyError,
    CameraInUseError,
    CaptureTimeError,
    ConnectError,
    DataError,
    EndedError,
    Error,
    ForkedError,
    FrameTooLargeError,
    ImageError,
    InfeasibleError,
    KeysError,
    ListenError,
    LogFullError,
    MissingPackageError,
    NotFoundError,
    NotOnDiskError,
    PermissionDenied,
    PublishError,
    ReplyTooLargeError,
    StateError,
    VersionError,
    WaitTimeoutError,
)
from mez.offloading import Answered, Offload, OffloadCounts, offload

__all__ = [
    "Answer",
    "AnswerCounts",
    "Answered",
    "Answers",
    "ArgumentError",
    "ArgumentTypeError",
    "BrokerError",
    "BusyError",
    "CameraInUseError",
    "CameraInfo",
    "CaptureTimeError",
    "ConnectError",
    "Contract",
    "ContractStanding",
    "ContractState",
    "DataError",
    "Detections",
    "Edge",
    "EndedError",
    "Error",
    "Event",
    "ForkedError",
    "Frame",
    "FrameId",
    "FrameTooLargeError",
    "ImageError",
    "InfeasibleError",
    "Join",
    "JoinCounts",
    "KeysError",
    "Knob",
    "Knobs",
    "ListenError",
    "LogFullError",
    "MissingPackageError",
    "NotFoundError",
    "NotHeld",
    "NotOnDiskError",
    "Note",
    "Offload",
    "OffloadCounts",
    "Origin",
    "Overlay",
    "Pair",
    "PermissionDenied",
    "PublishError",
    "Publisher",
    "Reply",
    "ReplyCounts",
    "ReplyTooLargeError",
    "Source",
    "SourceState",
    "StateError",
    "Stray",
    "Subscription",
    "Trace",
    "VersionError",
    "WaitTimeoutError",
    "__version__",
    "cameras",
    "edge",
    "forget_camera",
    "join",
    "knob",
    "notes",
    "offload",
    "publisher",
    "read",
    "rungs",
    "subscribe",
]
