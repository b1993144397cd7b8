"""`mez bridge dds`, and `mez bridge check` for the file of a bridge to DDS."""

import time
from pathlib import Path

import mez
from mez._commands import Teller, folder, until_ended
from mez.bridge import notes
from mez.bridge.dds import file
from mez.bridge.dds.domain import Participant
from mez.bridge.dds.file import DdsBridge
from mez.bridge.dds.run import DdsRun, described, unlocked


def run(path: Path, state: Path | None, *, is_json: bool, progress_s: float) -> int:
    """Run a bridge until Ctrl-C, and return the exit status.

    Args:
        path: Its file.
        state: The folder for its state. `None`: the default.
        is_json: Lines of JSON.
        progress_s: The interval of status lines, in seconds.

    Raises:
        Error: The file is wrong, DDS or the edge refuses, or the library is missing.
    """
    bridge = file.read(path)
    place = folder("bridges", bridge.state_name, state)
    teller = Teller(is_json=is_json)
    return until_ended(
        place,
        "bridge",
        lambda end: DdsRun(bridge, place, teller, progress_s).run(end),
        lambda: teller.tell("ended at once"),
    )


def check(path: Path, *, is_file_only: bool) -> int:
    """Check a file; then whether the edge answers, and whether the domain can be entered.

    Raises:
        Error: Something is wrong. The message says what to do.
    """
    bridge = file.read(path)
    print(f"{path}: {described(bridge)}")
    if is_file_only:
        return 0
    _check_edge(bridge)
    print("the edge answers, and this program may read the cameras")
    Participant(bridge.network, bridge.partition).close()
    print(unlocked(bridge))
    return 0


def _check_edge(bridge: DdsBridge) -> None:
    """Subscribe as the bridge does, but without its groups, and read no frame."""
    edge = list(bridge.edge) or None
    for out in bridge.outs.values():
        for contract in (out.contract, *out.offers.values()):
            mez.subscribe(out.cameras, edge=edge, keys=bridge.keys, **contract).close()
        if out.is_every:
            # A time that is past when the edge gets it needs the same grants as a group.
            mez.subscribe(out.cameras, edge=edge, keys=bridge.keys, since=time.time_ns()).close()
    if bridge.detections is not None:
        notes.check(bridge.wanted_notes())
