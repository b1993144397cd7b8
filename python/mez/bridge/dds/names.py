"""Converts names of cameras to names of ROS 2, and these to names of DDS topics.

The segments of a name of ROS 2 have letters, digits and `_`, and do not begin with a digit. Names of cameras
may have `.` and `-`, and begin with a digit. So two cameras can get the same name: the second one is refused.
"""

import re
from typing import Final

from mez.bridge.dds.errors import RefusedError

CAMERAS_MAX: Final = 1000
"""The most cameras that have topics, in all streams of frames together."""

ROS_NAME_MAX: Final = 247
"""The most characters of a name of ROS 2."""

ROS_NAME: Final = re.compile(r"(/[A-Za-z_][A-Za-z0-9_]*)+")
"""A full name of a topic in ROS 2."""

CAMERA: Final = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+){0,7}")
"""A camera's name."""

_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_]")


def ros_name(camera: str) -> str:
    """A camera's name in ROS 2: `dock-2/1st.left` is `/dock_2/_1st_left`."""
    parts = (_FOREIGN.sub("_", part) for part in camera.split("/"))
    return "".join(f"/_{part}" if part[:1].isdigit() else f"/{part}" for part in parts)


def is_ros_name(name: str) -> bool:
    """Whether a name is valid for a topic of ROS 2: `/robot1/front/image_raw`."""
    return len(name) <= ROS_NAME_MAX and ROS_NAME.fullmatch(name) is not None


def dds_topic(ros: str) -> str:
    """The name in DDS of a topic of ROS 2: `rt/dock/cam1/compressed`."""
    return f"rt{ros}"


FRAMES: Final = "mez/frame"
"""The topic of all `mez::Frame` of a domain. It is not a topic of ROS 2."""


class Names:
    """The names of cameras in topics of a bridge. Each name is given once, to the first camera."""

    def __init__(self) -> None:
        self._holders: dict[str, tuple[str, str]] = {}

    def claim(self, camera: str, stream: str) -> str:
        """The camera's name in ROS 2, for the topics of a stream.

        Raises:
            RefusedError: Another camera or another stream has it, it is too long, or there are too many.
        """
        name = ros_name(camera)
        holder = self._holders.get(name)
        if holder == (camera, stream):
            return name
        if holder is not None and holder[0] == camera:
            raise RefusedError("name_taken", f"{camera} is already in {holder[1]}; give both types there")
        if holder is not None:
            raise RefusedError(
                "name_taken",
                f"{camera}: its name in ROS 2, {name}, is used by {holder[0]} of {holder[1]}; rename one of "
                "the cameras, or leave one out",
            )
        # The longest ending of a topic must fit after the name.
        if len(name) > ROS_NAME_MAX - len("/compressed"):
            raise RefusedError("name_too_long", f"{camera}: its name in ROS 2 is too long; rename it")
        if len(self._holders) >= CAMERAS_MAX:
            raise RefusedError(
                "too_many_cameras",
                f"{camera}: {CAMERAS_MAX} cameras already have topics; copy the others with another bridge",
            )
        self._holders[name] = (camera, stream)
        return name
