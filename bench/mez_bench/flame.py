"""Draws flame graphs from samples of `perf`: where processor time goes while 1 MB frames cross.

A flame graph (B. Gregg, "The Flame Graph", CACM 59(6), 2016) stacks callees on their callers; widths are
processor time, and neighbours are in alphabetical order, not in the order of time.
"""

from __future__ import annotations

import html
import shutil
import subprocess
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

WIDTH: Final = 1600
ROW: Final = 15
LEAST_SHARE: Final = 0.001
"""Narrower boxes than this share of the whole are left out."""

Stack = tuple[str, ...]


@dataclass(slots=True)
class _Box:
    samples: int = 0
    callees: dict[str, _Box] = field(default_factory=dict)


def record(data: Path, seconds: float, hertz: int = 4999) -> subprocess.Popen[bytes]:
    """Start to sample all processors.

    Args:
        data: File for the samples.
        seconds: How long.
        hertz: Samples a second of each processor.

    Raises:
        FileNotFoundError: There is no `perf`; on Debian: `apt-get install linux-perf`.
    """
    perf = shutil.which("perf")
    if perf is None:
        raise FileNotFoundError("perf is not installed: apt-get install linux-perf")
    return subprocess.Popen(
        [perf, "record", "-q", "-a", "-g", "-F", str(hertz), "-o", str(data), "--", "sleep", str(seconds)],
        stderr=subprocess.DEVNULL,
    )


def stacks(data: Path, roots: dict[int, str]) -> Counter[Stack]:
    """Return the number of samples of each stack: its process, then its functions, outermost first.

    Args:
        data: File that `record` wrote.
        roots: Display names of the processes to count, by process id.
    """
    said = subprocess.run(
        ["perf", "script", "-i", str(data), "-F", "comm,pid,ip,sym"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    counted: Counter[Stack] = Counter()
    pid, frames = 0, list[str]()
    for line in [*said.splitlines(), ""]:
        if not line.strip():
            if pid in roots and frames:
                counted[(roots[pid], *reversed(frames))] += 1
            pid, frames = 0, []
        elif not line[0].isspace():
            pid = int(line.split()[-1])
        else:
            frames.append(" ".join(line.split()[1:]) or "[unknown]")
    return counted


def fold(counted: Counter[Stack], file: Path) -> None:
    """Write the stacks for other tools, one per line: functions joined by semicolons, then the samples."""
    lines = (f"{';'.join(stack)} {samples}\n" for stack, samples in sorted(counted.items()))
    file.write_text("".join(lines))


def draw(counted: Counter[Stack], title: str, file: Path) -> None:
    """Write a flame graph as SVG; the tooltip of a box shows its function and share."""
    root = _Box()
    for stack, samples in counted.items():
        root.samples += samples
        box = root
        for name in stack:
            box = box.callees.setdefault(name, _Box())
            box.samples += samples
    depth = _depth(root, root.samples)
    height = (depth + 3) * ROW
    parts = list(_boxes(root, root.samples, 0.0, 0, height))
    file.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="monospace" font-size="11">'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
        f'<text x="8" y="{ROW}" font-size="13">{html.escape(title)}</text>{"".join(parts)}</svg>\n'
    )


def _depth(box: _Box, whole: int) -> int:
    shown = [callee for callee in box.callees.values() if callee.samples >= whole * LEAST_SHARE]
    return 1 + max((_depth(callee, whole) for callee in shown), default=0)


def _boxes(box: _Box, whole: int, left: float, level: int, height: int) -> Iterable[str]:
    for name, callee in sorted(box.callees.items()):
        width = callee.samples / whole * WIDTH
        if callee.samples >= whole * LEAST_SHARE:
            top = height - (level + 1) * ROW
            # The same function has the same colour everywhere.
            hue = zlib.crc32(name.encode()) % 60
            share = f"{callee.samples / whole:.1%}"
            letters = int(width / 6.7)
            label = name if len(name) <= letters else name[: letters - 1] + "…" if letters > 3 else ""
            yield (
                f"<g><title>{html.escape(name)}: {share}</title>"
                f'<rect x="{left:.1f}" y="{top}" width="{max(width - 0.5, 0.3):.1f}" height="{ROW - 1}" '
                f'fill="hsl({hue},80%,68%)"/>'
                f'<text x="{left + 2:.1f}" y="{top + 11}">{html.escape(label)}</text></g>'
            )
            yield from _boxes(callee, whole, left, level + 1, height)
        left += width
