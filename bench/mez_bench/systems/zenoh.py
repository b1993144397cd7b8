"""Zenoh: publisher → TLS → router at the edge → subscriber. One broker fewer than Mez."""

from typing import Final

from mez._processes import free_port, run_to_end
from mez_bench.bursts import System
from mez_bench.peers import cargo_program
from mez_bench.run import Run

SHARED_MEMORY: Final = "false"
EXPRESS: Final = "true"
"""Messages are sent at once instead of in batches. Other combinations have not been compared yet."""


def start(run: Run) -> System:
    """Start Zenoh."""
    program = str(cargo_program(run, "zenoh"))
    folder = run.folder / "zenoh"
    keys = str(folder / "keys")
    folder.mkdir()
    run_to_end("keys for zenoh", [str(cargo_program(run, "floor")), "keys", keys])
    address = f"localhost:{free_port()}"
    local = f"unixsock-stream/{folder / 'router.sock'}"
    router = run.children.start("zenoh router", [program, "router", address, local, keys, SHARED_MEMORY])
    router.ready()
    publisher = run.children.start("zenoh publisher", [program, "publish", address, keys, EXPRESS])
    publisher.ready()
    subscriber = run.children.start("zenoh subscriber", [program, "subscribe", local, SHARED_MEMORY])
    subscriber.ready()
    return System(
        name="zenoh",
        publisher=publisher,
        subscriber=subscriber,
        brokers={"edge": router},
        details={
            "versions": "zenoh 1.10.2",
            "link": "TLS 1.3 over TCP, mutual, publisher to router",
            "local": "Unix socket",
            "shared_memory": SHARED_MEMORY,
            "publisher": f"congestion control block, priority real-time, express {EXPRESS}",
        },
    )
