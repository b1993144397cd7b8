"""Makes events of whether the edge answers, which it cannot tell itself."""

from mez.bridge.events.spool import EDGE, Spool


class Watch:
    """Compares whether the edge answers with what was told last.

    Args:
        spool: Takes the events.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._edge = "unknown"

    def answers(self, edge: str, utc_ms: int) -> None:
        """The edge of this name answers. `utc_ms` is when that was seen."""
        self._edge = edge
        self._tell(utc_ms, "answers", "the edge answers again", "info")

    def away(self, utc_ms: int, why: str) -> None:
        """It does not. `why` is for people."""
        self._tell(utc_ms, "away", why, "error")

    def _tell(self, utc_ms: int, state: str, sentence: str, severity: str) -> None:
        """Tell a state, if it is another than before. Before the first one, the edge answered."""
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
