"""Makes drives of a known speed: a file system on a loop device, whose writes the kernel limits.

The file behind the device is in memory (`/dev/shm`), so that the limit is all that makes it slow: what else
this machine's own disk has to do does not matter. The limit is `blkio.throttle.write_bps_device` of the root
control group. It holds for what the kernel writes back in the background too, which belongs to no program.
What a drive gives is measured before it is used.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mez_bench.errors import ExperimentError

BACKING: Final = Path("/dev/shm")
THROTTLES: Final = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")
SIZE_BYTES: Final = 3 << 30
SECTOR_BYTES: Final = 512
TRIAL_S: Final = 1.0
TRIALS: Final = 2
"""The better one counts: a busy machine only makes a drive look slower."""


@dataclass(frozen=True, slots=True)
class Drive:
    """A file system on a limited device.

    Attributes:
        folder: Where it is mounted.
        device: The loop device.
        limit_bytes_per_second: What it may write.
        trial_bytes_per_second: What it wrote in a trial: one large file, then a sync.
    """

    folder: Path
    device: Path
    limit_bytes_per_second: float
    trial_bytes_per_second: float

    def written_bytes(self) -> int:
        """All that was written to the device, metadata and journal of the file system included."""
        fields = Path(f"/sys/block/{self.device.name}/stat").read_text().split()
        return int(fields[6]) * SECTOR_BYTES


def unavailable() -> str | None:
    """Why this machine cannot have such drives; `None`: it can."""
    if os.geteuid() != 0:
        return "limited drives need root (loop devices, mounts, control groups)"
    if not THROTTLES.exists():
        return f"limited drives need the blkio controller of version 1 ({THROTTLES} is missing)"
    for tool in ("losetup", "mkfs.ext4", "mount", "umount"):
        if shutil.which(tool) is None:
            return f"limited drives need {tool}"
    return None


@contextlib.contextmanager
def drive(folder: Path, bytes_per_second: float) -> Iterator[Drive]:
    """Mount a drive, and take it away with the block.

    Args:
        folder: Where it is mounted. It is made.
        bytes_per_second: What it may write.

    Raises:
        ExperimentError: It cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    limit = round(bytes_per_second)
    with contextlib.ExitStack() as stack:
        number, name = tempfile.mkstemp(dir=BACKING, prefix="mez-drive-")
        os.close(number)
        stack.callback(Path(name).unlink)
        os.truncate(name, SIZE_BYTES)
        device = Path(_run("losetup", "--find", "--show", name))
        stack.callback(_run, "losetup", "--detach", str(device))
        # Nothing is left for later, so that nothing is written by the kernel itself during a run.
        # With fast commits a sync writes 8 kB beside its data, instead of 25 kB.
        lazy = "lazy_itable_init=0,lazy_journal_init=0"
        _run("mkfs.ext4", "-q", "-m", "0", "-O", "fast_commit", "-E", lazy, str(device))
        _run("mount", str(device), str(folder))
        stack.callback(_unmount, folder)
        # Kafka takes every folder for a partition.
        (folder / "lost+found").rmdir()
        of_device = Path(f"/sys/block/{device.name}/dev").read_text().strip()
        THROTTLES.write_text(f"{of_device} {limit}")
        stack.callback(THROTTLES.write_text, f"{of_device} 0")
        yield Drive(folder, device, limit, max(_trial(folder, limit) for _ in range(TRIALS)))


@contextlib.contextmanager
def in_memory(folder: Path) -> Iterator[None]:
    """Have what is written to a folder kept in memory, without a limit, and forget it with the block."""
    with tempfile.TemporaryDirectory(dir=BACKING, prefix="mez-memory-") as place:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.symlink_to(place)
        yield


def _trial(folder: Path, limit: int) -> float:
    path = folder / "trial"
    size = round(limit * TRIAL_S)
    begun = time.monotonic()
    with path.open("wb", buffering=0) as file:
        file.write(bytes(size))
        os.fsync(file.fileno())
    taken = time.monotonic() - begun
    path.unlink()
    return size / taken


def _unmount(folder: Path) -> None:
    # Whoever wrote there may still be ending.
    for _ in range(50):
        if subprocess.run(["umount", str(folder)], capture_output=True, check=False).returncode == 0:
            return
        time.sleep(0.1)
    _run("umount", "--lazy", str(folder))


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ExperimentError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")
    return done.stdout.strip()
