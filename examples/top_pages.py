"""Names the pages of a site that are asked for most. Each server sends its counts, and the edge adds them up.

A server counts the requests of every quarter of a second, and declares how its counts may be made smaller:
fewer pages, or none with few requests. On a slow link Mez turns these knobs, so that lists stay on time.

    python top_pages.py record recordings                           makes requests, and records their counts
    mez profile run --stream recordings/web0 --stream recordings/web1 --app top_pages.py:top_pages \
        --accuracy top_pages.py:agreement --knobs top_pages.py:KNOBS --rate 4 --out top-pages.json
    python top_pages.py server log/web0 --edge edge.local           on one server
    python top_pages.py server log/web1 --edge edge.local           on another
    python top_pages.py top 'log/*' --edge edge.local --profile top-pages.json
"""

import argparse
import itertools
import time
from pathlib import Path

import mez
from mez.apps.web_log import JSON, KNOBS, WINDOW_S, Traffic, agreement, record, top_pages

SERVERS = 2
WINDOW_NS = round(WINDOW_S * 1e9)

__all__ = ["KNOBS", "agreement", "top_pages"]


def serve(name: str, edge: str | None, seed: int) -> None:
    """Publish the counts of a server. Its name ends in its number."""
    number, traffic = int(name[-1]), Traffic(seed, SERVERS)
    with mez.publisher(name, edge=edge, knobs=KNOBS) as log:
        began = time.time_ns() // WINDOW_NS
        for window in itertools.count(1):
            counts = record(traffic.counts(began + window, number))
            # All servers end a window at the same times, so that the edge can bring their counts together.
            end_ns = (began + window) * WINDOW_NS
            time.sleep(max(0.0, (end_ns - time.time_ns()) / 1e9))
            log.send_data(counts, content_type=JSON, captured=end_ns)


def watch(pattern: str, edge: str | None, profile: Path, latency_ms: float, accuracy: float) -> None:
    """Add up the newest counts of all servers, and print the list whenever a window is complete."""
    newest: dict[str, mez.Frame] = {}
    with mez.subscribe(
        pattern, edge=edge, latency_ms=latency_ms, accuracy=accuracy, profile=profile
    ) as servers:
        for frame in servers:
            newest[frame.camera] = frame
            if len({one.captured_ns for one in newest.values()}) == 1:
                pages = top_pages([one.data for one in newest.values()])
                print(f"{frame.contract.state}, {frame.rung}, {len(newest)} servers: {', '.join(pages[:5])}")


def keep(folder: Path, windows: int, seed: int) -> None:
    """Record counts: of each server a folder with a file for each window."""
    traffic = Traffic(seed, SERVERS)
    for server in range(SERVERS):
        (folder / f"web{server}").mkdir(parents=True, exist_ok=True)
        for window in range(windows):
            file = folder / f"web{server}" / f"{window:06}.json"
            file.write_bytes(record(traffic.counts(window, server)))


def main() -> None:
    """Run one of the three parts."""
    parser = argparse.ArgumentParser(description="The pages that are asked for most.")
    parser.add_argument("part", choices=["record", "server", "top"])
    parser.add_argument("name", help="folder of the recording, name of the server, or pattern of the servers")
    parser.add_argument("--edge")
    parser.add_argument("--profile", type=Path, default="top-pages.json")
    parser.add_argument("--latency", type=float, default=250, metavar="MS")
    parser.add_argument("--accuracy", type=float, default=0.5)
    parser.add_argument("--windows", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.part == "record":
        keep(Path(options.name), options.windows, options.seed)
    elif options.part == "server":
        serve(options.name, options.edge, options.seed)
    else:
        watch(options.name, options.edge, options.profile, options.latency, options.accuracy)


if __name__ == "__main__":
    main()
