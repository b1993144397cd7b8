"""Makes drives of a known speed: a file system on a loop device, whose writes the kernel limits.

The file behind the device is in memory (`/dev/shm`), so that only the limit makes the drive slow, and other
work of this machine's own disk does not matter. The limit is `blkio.throttle.write_bps_device` of the root
control group. It also limits the kernel's write-back in the background, which belongs to no program. The rate
of a drive is measured before the drive is used.
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
"""The best trial counts: a busy machine can only make a drive look slower."""


@dataclass(frozen=True, slots=True)
class Drive:
    """A file system on a limited device.

    Attributes:
        folder: Where it is mounted.
        device: The loop device.
        limit_bytes_per_second: Limit of its write rate.
        trial_bytes_per_second: Its write rate in a trial: one large file, then a sync.
    """

    folder: Path
    device: Path
    limit_bytes_per_second: float
    trial_bytes_per_second: float

    def written_bytes(self) -> int:
        """Return the bytes written to the device, metadata and journal of the file system included."""
        fields = Path(f"/sys/block/{self.device.name}/stat").read_text().split()
        return int(fields[6]) * SECTOR_BYTES


def unavailable() -> str | None:
    """Return why this machine cannot have limited drives; `None` if it can."""
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
    """Mount a drive, and remove it at the end of the block.

    Args:
        folder: Where it is mounted. The folder is created.
        bytes_per_second: Limit of its write rate.

    Raises:
        ExperimentError: The drive cannot be made.
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
        # Initialise all tables now, so that the kernel does not write them during a run.
        # With fast commits a sync writes 8 kB beside its data, instead of 25 kB.
        lazy = "lazy_itable_init=0,lazy_journal_init=0"
        _run("mkfs.ext4", "-q", "-m", "0", "-O", "fast_commit", "-E", lazy, str(device))
        _run("mount", str(device), str(folder))
        stack.callback(_unmount, folder)
        # Kafka treats every folder as a partition.
        (folder / "lost+found").rmdir()
        of_device = Path(f"/sys/block/{device.name}/dev").read_text().strip()
        THROTTLES.write_text(f"{of_device} {limit}")
        stack.callback(THROTTLES.write_text, f"{of_device} 0")
        yield Drive(folder, device, limit, max(_trial(folder, limit) for _ in range(TRIALS)))


@contextlib.contextmanager
def in_memory(folder: Path) -> Iterator[None]:
    """Keep a folder in memory, without a limit, and remove its content at the end of the block."""
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
    # A process that wrote there may still be ending.
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
