"""Describes the machine and the commit that a result was measured with."""

import os
import platform
import subprocess
from pathlib import Path

from mez_bench.experiment import Cell
from mez_bench.run import ROOT


def commit() -> str:
    """Return the checkout's commit, marked `-dirty` where files differ from it; `unknown` outside of git."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(ROOT), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine() -> dict[str, Cell]:
    """Describe this machine, as far as it matters to figures."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_mb": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 10**6,
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "tcp_congestion_control": _setting("net/ipv4/tcp_congestion_control"),
        "udp_receive_buffer_bytes_max": int(_setting("net/core/rmem_max") or 0),
        # Load average of the last minute: how busy the machine was when the run began.
        "load_before": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.machine()


def _setting(name: str) -> str:
    path = Path("/proc/sys") / name
    return path.read_text().strip() if path.exists() else ""
