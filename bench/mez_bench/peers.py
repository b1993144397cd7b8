"""Builds the systems that Mez is compared with, and Mez for profilers, once, into `.cache/bench`."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mez_bench.run import CACHE, ROOT, Run

PEERS: Final = ROOT / "bench" / "peers"
NATS_SERVER_VERSION: Final = "v2.15.2"


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
    # Cargo itself decides what to rebuild; only the first build takes long.
    if not program.exists():
        run.say(f"building the peer {peer}, once; this takes minutes")
    _build(peer, command)
    return program


def mez_with_frame_pointers(run: Run) -> Path:
    """Build `mez` with frame pointers, so that a profiler can walk its stacks.

    Raises:
        PeerError: It does not build.
    """
    target = CACHE / "frame-pointers"
    program = target / "release" / "mez"
    command = ["cargo", "build", "--release", "--locked", "--package", "mez-cli", "--features", "bench"]
    command += ["--target-dir", str(target)]
    if not program.exists():
        run.say("building mez with frame pointers, once; this takes minutes")
    flags = f"{os.environ.get('RUSTFLAGS', '')} -C force-frame-pointers=yes".strip()
    _build("mez", command, {**os.environ, "RUSTFLAGS": flags})
    return program


def nats_server(run: Run) -> Path:
    """Install the pinned `nats-server` from Go's module proxy, and return the program.

    Raises:
        PeerError: There is no Go, or it does not build.
    """
    folder = CACHE / f"nats-server-{NATS_SERVER_VERSION}"
    program = folder / "nats-server"
    if not program.exists():
        go = shutil.which("go")
        if go is None:
            raise PeerError("nats-server is built with Go, which is not in PATH; install it (https://go.dev)")
        run.say("building nats-server, once; this takes minutes")
        module = f"github.com/nats-io/nats-server/v2@{NATS_SERVER_VERSION}"
        _build("nats-server", [go, "install", module], {**os.environ, "GOBIN": str(folder)})
    return program


def _build(peer: str, command: Sequence[str], environment: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    except OSError as error:
        raise PeerError(f"{peer} cannot be built: {error}") from error
    if done.returncode != 0:
        raise PeerError(f"{peer} does not build: {' '.join(command)}\n{done.stderr.strip()[-2000:]}")
