"""Publishes the counts of a site's servers: `servers.py KEYS FOLDER SEED WINDOWS RUNG NAME=EDGE…`.

It writes `ready` when all servers are connected. After a line of input it writes when it begins, and
publishes a window of each server every `WINDOW_S`. RUNG is applied to every record before it is sent. With
`-`, records are sent unchanged, and Mez turns the knobs.
"""

import json
import sys
import time
from pathlib import Path

import mez
from mez.apps import web_log

ADAPTIVE = "-"


def _bodies(seed: int, server: int, servers: int, windows: int, rung: str) -> list[bytes]:
    """Return the records of a server. They are made in advance, because that takes longer than a window."""
    traffic = web_log.Traffic(seed, servers)
    counted = (web_log.record(traffic.counts(number, server)) for number in range(windows))
    return [body if rung == ADAPTIVE else web_log.KNOBS.apply(rung, body, web_log.JSON) for body in counted]


def main(keys: str, folder: str, seed: str, windows: str, rung: str, *edges: str) -> None:
    """Publish all windows, and wait for another line of input."""
    servers = dict(word.split("=", 1) for word in edges)
    bodies = [_bodies(int(seed), at, len(servers), int(windows), rung) for at in range(len(servers))]
    publishers = []
    for at, (name, edge) in enumerate(servers.items()):
        publisher = mez.publisher(
            name,
            edge=edge,
            keys=keys,
            state=Path(folder) / f"state{at}",
            memory_bytes=16 << 20,
            knobs=web_log.KNOBS if rung == ADAPTIVE else None,
        )
        publisher.wait_connected(timeout=20)
        publishers.append(publisher)
    print("ready", flush=True)
    sys.stdin.readline()
    window_ns = round(web_log.WINDOW_S * 1e9)
    # Windows begin at whole multiples of their length on all servers, by their wall clocks.
    began_ns = (time.time_ns() // window_ns + 1) * window_ns
    print(json.dumps({"began_ns": began_ns}), flush=True)
    for number in range(int(windows)):
        end_ns = began_ns + (number + 1) * window_ns
        time.sleep(max(0.0, (end_ns - time.time_ns()) / 1e9))
        for publisher, of_server in zip(publishers, bodies, strict=True):
            publisher.send_data(of_server[number], content_type=web_log.JSON, captured=end_ns)
    sys.stdin.readline()
    for publisher in publishers:
        publisher.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
