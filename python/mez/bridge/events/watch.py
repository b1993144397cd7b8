"""Makes events of what the edge shows as a state only: certificates near their end, groups behind."""

import re
from collections.abc import Mapping
from typing import Any, Final

from mez._commands import Teller
from mez.bridge.events.file import EventsBridge
from mez.bridge.events.spool import Spool

MISSED: Final = "missed"
"""The condition that keeps which start of the edge was told as missed."""
DAY_MS: Final = 86_400_000
CONDITIONS_MAX: Final = 10_000
"""The most groups and certificates that are watched."""


class Watch:
    """Compares what is so with what was told last.

    Args:
        bridge: The bridge, with its bounds.
        spool: Takes the events.
        teller: Told that there are too many to watch.
    """

    def __init__(self, bridge: EventsBridge, spool: Spool, teller: Teller) -> None:
        self._bridge = bridge
        self._spool = spool
        self._teller = teller
        self._is_full = False
        self._edge = "unknown"

    def see(self, site: Mapping[str, Any], applications: Mapping[str, Any]) -> None:
        """Look at what the edge answered to `/api/v1/site` and `/api/v1/applications`."""
        self._edge = site["edge"]
        now = site["now_utc_ms"]
        known = {"edge", MISSED}
        self.edge(now, is_away=False)
        for certificate in site["certificates"]:
            known.add(self._certificate(now, certificate))
        for group in applications["groups"]:
            known.add(self._group(now, group))
        self._spool.forget_but(known)

    def edge(self, utc_ms: int, *, is_away: bool, why: str = "") -> None:
        """Whether the edge answers.

        Args:
            utc_ms: When that was seen.
            is_away: Whether it does not.
            why: Why not, for people.
        """
        state, sentence = ("away", why) if is_away else ("answers", "the edge answers again")
        self._tell(utc_ms, "edge", "edge", ("answers", state), sentence, "error" if is_away else "info")

    def _certificate(self, now: int, certificate: Mapping[str, Any]) -> str:
        of, ends = certificate["of"], certificate["ends_utc_ms"]
        key = f"certificate {of}"
        left_days = (ends - now) / DAY_MS
        if left_days <= 0:
            state, sentence = "ended", f"the certificate of {of} has ended"
        elif left_days <= self._bridge.certificate_days:
            state, sentence = "ends_soon", f"the certificate of {of} ends in {left_days:.1f} days"
        else:
            state, sentence = "ok", f"the certificate of {of} holds for {left_days:.0f} days"
        severity = {"ended": "error", "ends_soon": "warning", "ok": "info"}[state]
        self._tell(now, key, "certificate", ("ok", state), sentence, severity)
        return key

    def _group(self, now: int, group: Mapping[str, Any]) -> str:
        name = f"{group['owner']} {group['name']}"
        key = f"group {name}"
        lags = [(lane["lag"], lane["camera"]) for lane in group["lanes"] if lane["lag"] is not None]
        lag, camera = max(lags, default=(0, ""))
        before = self._spool.conditions.get(key, "ok")
        # What was told as behind has caught up only at half of the bound, so that a group at the bound is not
        # told again and again.
        bound = self._bridge.lag_records_max / (2 if before == "behind" else 1)
        state = "behind" if lag > bound else "ok"
        sentence = f"the group {group['name']} of {group['owner']} " + (
            f"is {lag} records behind with {camera}" if state == "behind" else "has caught up"
        )
        self._tell(now, key, "group", ("ok", state), sentence, "warning" if state == "behind" else "info")
        return key

    def _tell(
        self, utc_ms: int, key: str, kind: str, states: tuple[str, str], sentence: str, severity: str
    ) -> None:
        """Tell a state, if it is another than before; what has never been told was as usual."""
        usual, state = states
        before = self._spool.conditions.get(key, usual)
        if state == before:
            return
        if key not in self._spool.conditions and len(self._spool.conditions) >= CONDITIONS_MAX:
            if not self._is_full:
                self._is_full = True
                self._teller.tell(
                    f"{CONDITIONS_MAX} states of groups and certificates are watched, and no more; "
                    "remove groups that nobody uses"
                )
            return
        event = {
            "id": re.sub("[^A-Za-z0-9_.-]+", "-", key) + f"-{utc_ms}",
            "utc_ms": utc_ms,
            "kind": kind,
            "severity": severity,
            "camera": None,
            "application": None,
            "subscription": None,
            "state": state,
            "before": before,
            "sentence": sentence,
            "edge": self._edge,
        }
        self._spool.take(event, condition=(key, state))
