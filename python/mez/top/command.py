"""The command `mez top`."""

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mez._interrupt import Interrupt
from mez._web import Web
from mez.errors import Error
from mez.top.screen import Screen
from mez.top.view import SORTS, Snapshot, cut, lines, plain

EVERY_S: Final = 1.0
"""How often the edge is queried, in seconds. The edge updates its figures as often."""
_KEY_S: Final = 0.2
_KEYS: Final = {key[0]: key for key in SORTS}


def run(words: Sequence[str]) -> int:
    """Run the command line, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="mez top",
        description="Show cameras, applications and groups of an edge in the terminal, updated every second. "
        "The edge must run with --web.",
        epilog="Keys: n, a, f, c, l sort by name, age, frames per second, contract, link; q ends.",
    )
    parser.add_argument(
        "--web", metavar="HOST[:PORT]", help="address of mez edge --web; needs app keys [this host's edge]"
    )
    parser.add_argument("--edge", metavar="SOCKET", help="without --web: Unix socket of this host's edge")
    parser.add_argument("--keys", type=Path, metavar="DIR", help="folder of keys [MEZ_KEYS]")
    parser.add_argument("--sort", choices=tuple(SORTS), default="name", help="how to sort cameras [name]")
    parser.add_argument("--once", action="store_true", help="print one table, without escape codes, and end")
    options = parser.parse_args(words)
    try:
        web = Web(options.web, keys=options.keys, edge=options.edge)
        if options.once:
            print("\n".join(lines(_asked(web), options.sort, None)))
            return 0
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            parser.error("the input or output is not a terminal; give --once")
        _show(web, options.sort)
    except Error as error:
        print(f"mez top: {error}", file=sys.stderr)
        return 1
    return 0


def _asked(web: Web) -> Snapshot:
    return Snapshot(
        web.get("/api/v1/site"), web.get("/api/v1/cameras")["cameras"], web.get("/api/v1/applications")
    )


class _Asker:
    """Queries the edge on its own thread, so that keys also work while it does not answer."""

    def __init__(self, web: Web) -> None:
        self._web = web
        self.newest: Snapshot | None = None
        self.away = "waiting for the edge"
        """Why the edge does not answer. Empty: it answers."""
        self._answered = ""
        threading.Thread(target=self._run, name="top", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                self.newest = _asked(self._web)
                self._answered, self.away = time.strftime("%H:%M:%S"), ""
            except Error as error:
                since = f"no answer since {self._answered}: " if self._answered else ""
                self.away = f"{since}{error}"
            time.sleep(EVERY_S)


def _show(web: Web, sort: str) -> None:
    asker = _Asker(web)
    drawn: object = None
    with Interrupt() as end, Screen() as screen:
        while not end():
            now = (asker.newest, asker.away, sort, screen.size)
            if now != drawn:
                drawn = now
                screen.draw(_page(asker.newest, asker.away, sort, screen.size[0]))
            key = screen.key(_KEY_S)
            if key == "q":
                return
            sort = _KEYS.get(key, sort)


def _page(newest: Snapshot | None, away: str, sort: str, width: int) -> list[str]:
    # Texts of errors may come from the other side.
    told = [cut(plain(away), width)] if away else []
    return told + ([] if newest is None else lines(newest, sort, width))
