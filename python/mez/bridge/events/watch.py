"""Makes events that report whether the edge answers, because the edge cannot report this itself."""

from mez.bridge.events.spool import EDGE, Spool


class Watch:
    """Compares whether the edge answers with the state that was reported last.

    Args:
        spool: Takes the events.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._edge = "unknown"

    def answers(self, edge: str, utc_ms: int) -> None:
        """Note that the edge of this name answers, at `utc_ms`."""
        self._edge = edge
        self._tell(utc_ms, "answers", "the edge answers again", "info")

    def away(self, utc_ms: int, why: str) -> None:
        """Note that the edge does not answer. `why` is for people."""
        self._tell(utc_ms, "away", why, "error")

    def _tell(self, utc_ms: int, state: str, sentence: str, severity: str) -> None:
        """Report a state, if it has changed. At the start, the edge counts as answering."""
        before = self._spool.conditions.get(EDGE, "answers")
        if state == before:
            return
        event = {
            "id": f"edge-{utc_ms}",
            "utc_ms": utc_ms,
            "kind": "edge",
            "severity": severity,
            "camera": None,
            "application": None,
            "subscription": None,
            "state": state,
            "before": before,
            "sentence": sentence,
            "edge": self._edge,
        }
        self._spool.take(event, condition=(EDGE, state))
