"""The floor: the same hops and copies with the same TLS library, and nothing else."""

from mez._processes import free_port, run_to_end
from mez_bench.bursts import System
from mez_bench.peers import cargo_program
from mez_bench.run import Run


def start(run: Run) -> System:
    """Start the floor."""
    program = str(cargo_program(run, "floor"))
    folder = run.folder / "floor"
    keys = str(folder / "keys")
    folder.mkdir()
    run_to_end("floor keys", [program, "keys", keys])
    camera_socket, edge_socket = str(folder / "camera.sock"), str(folder / "edge.sock")
    listen = f"127.0.0.1:{free_port()}"
    edge = run.children.start("floor edge", [program, "edge", listen, edge_socket, keys])
    edge.ready()
    camera = run.children.start("floor camera", [program, "camera", camera_socket, listen, keys])
    camera.ready()
    publisher = run.children.start("floor publisher", [program, "publish", camera_socket])
    publisher.ready()
    subscriber = run.children.start("floor subscriber", [program, "subscribe", edge_socket])
    subscriber.ready()
    return System(
        name="floor",
        publisher=publisher,
        subscriber=subscriber,
        brokers={"camera": camera, "edge": edge},
        details={"link": "TLS 1.3 over TCP, mutual, rustls with ring", "local": "Unix socket"},
    )
