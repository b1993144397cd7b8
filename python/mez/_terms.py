"""The contract that a subscription asks for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from mez import _arguments as arguments


@dataclass(frozen=True, slots=True)
class Terms:
    """The contract that a subscription asks for. It can change while the subscription runs."""

    latency_ms: float | None = None
    accuracy: float | None = None
    on_time_share: float = 0.98
    profile: arguments.StrPath | Mapping[str, object] | None = None
    min_fps: float = 0.0
    on_infeasible: str = "degrade"
    priority: int = 0

    def checked(self) -> "CheckedTerms":
        """The checked values, for the native module."""
        content, name = arguments.profile(self.profile)
        return {
            "latency_ms": arguments.optional_number("latency_ms", self.latency_ms),
            "accuracy": arguments.optional_number("accuracy", self.accuracy),
            "on_time_share": arguments.number("on_time_share", self.on_time_share),
            "profile": content,
            "profile_name": name,
            "min_fps": arguments.number("min_fps", self.min_fps),
            "on_infeasible": arguments.text("on_infeasible", self.on_infeasible),
            "priority": arguments.whole("priority", self.priority, -(1 << 31), (1 << 31) - 1),
        }


class CheckedTerms(TypedDict):
    """Keyword arguments of the native module."""

    latency_ms: float | None
    accuracy: float | None
    on_time_share: float
    profile: bytes | None
    profile_name: str | None
    min_fps: float
    on_infeasible: str
    priority: int
