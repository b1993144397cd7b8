"""NATS: publisher → TLS → server at the edge → subscriber. One broker less than Mez, as NATS is used."""

from typing import Final

from mez.demo.processes import free_port, run_to_end
from mez_bench.bursts import System
from mez_bench.peers import NATS_SERVER_VERSION, cargo_program, nats_server
from mez_bench.run import Run

PAYLOAD_BYTES_MAX: Final = 8 << 20
"""The server refuses more than 1 MiB by default."""


def start(run: Run) -> System:
    """Start NATS."""
    server_program, program = str(nats_server(run)), str(cargo_program(run, "nats"))
    folder = run.folder / "nats"
    keys = folder / "keys"
    folder.mkdir()
    run_to_end("keys for nats", [str(cargo_program(run, "floor")), "keys", str(keys)])
    port = free_port()
    settings = folder / "server.conf"
    settings.write_text(
        f'listen: "127.0.0.1:{port}"\n'
        f"max_payload: {PAYLOAD_BYTES_MAX}\n"
        # The subscriber runs on the server's host: TLS there would only cost it.
        "allow_non_tls: true\n"
        "tls {\n"
        f'  cert_file: "{keys / "server.pem"}"\n'
        f'  key_file: "{keys / "server.key"}"\n'
        f'  ca_file: "{keys / "authority.pem"}"\n'
        "  verify: true\n"
        "}\n"
    )
    server = run.children.start("nats server", [server_program, "--config", str(settings)])
    server.await_port(port)
    publisher = run.children.start(
        "nats publisher", [program, "publish", f"tls://localhost:{port}", str(keys)]
    )
    publisher.ready()
    subscriber = run.children.start("nats subscriber", [program, "subscribe", f"nats://127.0.0.1:{port}"])
    subscriber.ready()
    return System(
        name="nats",
        publisher=publisher,
        subscriber=subscriber,
        brokers={"edge": server},
        details={
            "versions": f"nats-server {NATS_SERVER_VERSION}, async-nats 0.51.0",
            "link": "TLS 1.3 over TCP, mutual, publisher to server",
            "local": "TCP",
            "payload_bytes_max": f"{PAYLOAD_BYTES_MAX}",
        },
    )
