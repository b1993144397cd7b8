"""Builds what Mez is measured beside, once, into `.cache/bench`."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mez_bench.run import CACHE, ROOT, Run

PEERS: Final = ROOT / "bench" / "peers"


class PeerError(Exception):
    """A peer cannot be measured. The message says why."""


def cargo_program(run: Run, peer: str) -> Path:
    """Build `bench/peers/PEER` with the versions in its `Cargo.lock`, and return the program.

    Raises:
        PeerError: It does not build.
    """
    target = CACHE / "target"
    program = target / "release" / f"mez-peer-{peer}"
    manifest = PEERS / peer / "Cargo.toml"
    command = ["cargo", "build", "--release", "--locked"]
    command += ["--manifest-path", str(manifest), "--target-dir", str(target)]
    # Cargo itself knows whether anything has to be done; only the first time takes long.
    if not program.exists():
        run.say(f"building the peer {peer}, once; this takes minutes")
    _build(peer, command)
    return program


def _build(peer: str, command: Sequence[str], environment: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    except OSError as error:
        raise PeerError(f"{peer} cannot be built: {error}") from error
    if done.returncode != 0:
        raise PeerError(f"{peer} does not build: {' '.join(command)}\n{done.stderr.strip()[-2000:]}")
