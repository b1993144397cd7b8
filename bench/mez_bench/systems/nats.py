"""NATS: publisher → TLS → server at the edge → subscriber, the usual setup.

A second setup has a leaf node beside the camera.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mez._processes import free_port, run_to_end
from mez_bench.bursts import System
from mez_bench.children import Child
from mez_bench.peers import NATS_SERVER_VERSION, cargo_program, nats_server
from mez_bench.run import Run

PAYLOAD_BYTES_MAX: Final = 8 << 20
"""The server refuses more than 1 MiB by default."""


def start(run: Run) -> System:
    """Start NATS with one server, at the edge."""
    folder, keys = _folder(run, "nats")
    server, port = _edge_server(run, folder, keys)
    return _system(
        run,
        "nats",
        {"edge": server},
        publish=(f"tls://localhost:{port}", str(keys)),
        subscribe=f"nats://127.0.0.1:{port}",
        link="publisher to server",
    )


def start_leaf(run: Run) -> System:
    """Start NATS with a leaf node of the edge's server beside the camera: as many hops as in Mez."""
    folder, keys = _folder(run, "nats_leaf")
    leaf_port = free_port()
    leafnodes = f'leafnodes {{\n  listen: "127.0.0.1:{leaf_port}"\n{_tls(keys, "server", verify=True)}}}\n'
    edge, port = _edge_server(run, folder, keys, leafnodes)
    camera_port = free_port()
    remote = f'url: "tls://localhost:{leaf_port}"\n{_tls(keys, "client")}'
    camera = _server(run, folder, "camera", camera_port, f"leafnodes {{ remotes: [{{\n{remote}}}] }}\n")
    return _system(
        run,
        "nats_leaf",
        {"camera": camera, "edge": edge},
        publish=(f"nats://127.0.0.1:{camera_port}",),
        subscribe=f"nats://127.0.0.1:{port}",
        link="leaf node to server",
    )


def _folder(run: Run, name: str) -> tuple[Path, Path]:
    folder = run.folder / name
    folder.mkdir()
    keys = folder / "keys"
    run_to_end("keys for nats", [str(cargo_program(run, "floor")), "keys", str(keys)])
    return folder, keys


def _tls(keys: Path, who: str, *, verify: bool = False) -> str:
    return (
        "tls {\n"
        f'  cert_file: "{keys / who}.pem"\n'
        f'  key_file: "{keys / who}.key"\n'
        f'  ca_file: "{keys / "authority.pem"}"\n' + ("  verify: true\n" if verify else "") + "}\n"
    )


def _edge_server(run: Run, folder: Path, keys: Path, more: str = "") -> tuple[Child, int]:
    port = free_port()
    # The subscriber runs on the server's host: TLS would only take time.
    settings = f"allow_non_tls: true\n{_tls(keys, 'server', verify=True)}{more}"
    return _server(run, folder, "edge", port, settings), port


def _server(run: Run, folder: Path, name: str, port: int, more: str) -> Child:
    settings = folder / f"{name}.conf"
    settings.write_text(
        f'server_name: "{name}"\nlisten: "127.0.0.1:{port}"\nmax_payload: {PAYLOAD_BYTES_MAX}\n{more}'
    )
    server = run.children.start(f"nats server, {name}", [str(nats_server(run)), "--config", str(settings)])
    server.await_port(port)
    return server


def _system(
    run: Run,
    name: str,
    brokers: dict[str, Child],
    publish: Sequence[str],
    subscribe: str,
    link: str,
) -> System:
    program = str(cargo_program(run, "nats"))
    publisher = run.children.start(f"{name} publisher", [program, "publish", *publish])
    publisher.ready()
    subscriber = run.children.start(f"{name} subscriber", [program, "subscribe", subscribe])
    subscriber.ready()
    return System(
        name=name,
        publisher=publisher,
        subscriber=subscriber,
        brokers=brokers,
        details={
            "versions": f"nats-server {NATS_SERVER_VERSION}, async-nats 0.51.0",
            "link": f"TLS 1.3 over TCP, mutual, {link}",
            "local": "TCP",
            "payload_bytes_max": f"{PAYLOAD_BYTES_MAX}",
        },
    )
