"""Runs an Apache Kafka cluster on loopback, for tests and for trying pipelines: `make kafka`.

Needs Java 17 and Maven, which `tools/setup --tests` installs. `fetch` downloads Kafka's published jars into
`.cache/kafka`, once. `run` starts one or three brokers in KRaft mode, prints `ready SERVERS`, and stops them
on Ctrl-C. With `--secure` each broker has a second port with TLS and a password. It needs no build of Mez.
"""

import argparse
import base64
import hashlib
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
POM: Final = ROOT / "tools/kafka/pom.xml"
SUMS: Final = ROOT / "tools/kafka/jars.sha256"
JARS: Final = ROOT / ".cache/kafka"
LEASH: Final = ROOT / "python/mez/_leash.py"

READY_S_MAX: Final = 180.0
"""How long brokers may take to accept connections. One takes three seconds on an idle machine."""

RECORD_BYTES_MAX: Final = 10 << 20
"""The largest record that brokers take, in bytes."""

# Brokers start a second sooner than with the defaults, which are for machines with many processors.
JVM: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

USERNAME: Final = "mez"
STORE_PASSWORD: Final = "changeit"
"""Password of the key store, which is in a folder that only its user can read."""


class KafkaError(Exception):
    """The cluster cannot run. The message says what to do."""


@dataclass(frozen=True)
class Ports:
    """The ports of a broker on 127.0.0.1; `secure` is 0 without one."""

    plain: int
    controller: int
    secure: int


@dataclass(frozen=True)
class Cluster:
    """The content of `cluster.json` in the cluster's folder.

    Attributes:
        servers: Where clients connect: `HOST:PORT,…`.
        secure: Where clients connect with TLS and SASL (`PLAIN`; `SCRAM-SHA-512` for users that are added
            later); empty without `--secure`.
        ca: The file with the authority of the brokers' certificate.
        credentials: The file with username and password.
        ports: The ports of each broker.
        id: The cluster's identity.
    """

    servers: str
    secure: str
    ca: str
    credentials: str
    ports: list[Ports]
    id: str


def fetch() -> Path:
    """Return the folder with Kafka's jars. If it is missing, fetch and check them first."""
    wanted = dict(reversed(line.split()) for line in SUMS.read_text().splitlines())
    stamp = hashlib.sha256(SUMS.read_bytes()).hexdigest()[:16]
    place = JARS / stamp
    if place.is_dir():
        return place
    JARS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=JARS, prefix="fetch-") as work:
        command = ["mvn", "--quiet", "--batch-mode", "--file", str(POM), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={work}/jars", "-DincludeScope=runtime"]
        try:
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        except FileNotFoundError:
            raise KafkaError("mvn, which fetches Kafka, is not installed; run tools/setup --tests") from None
        except subprocess.CalledProcessError as error:
            raise KafkaError(f"mvn could not fetch Kafka (status {error.returncode}); run it again") from None
        jars = Path(work) / "jars"
        found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in jars.glob("*.jar")}
        if found != wanted:
            odd = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
            raise KafkaError(f"jars that differ from {SUMS.name}: {', '.join(odd)}")
        try:
            jars.rename(place)
        except OSError:
            # Another process was faster.
            if not place.is_dir():
                raise
    return place


def described(folder: Path, brokers: int, is_secure: bool) -> Cluster:
    """Return the cluster in a folder. It keeps its ports, so that clients find it after a restart."""
    known = folder / "cluster.json"
    if known.exists():
        told = json.loads(known.read_text())
        return Cluster(**{**told, "ports": [Ports(**ports) for ports in told["ports"]]})
    free = free_ports(3 * brokers)
    ports = [Ports(free[3 * n], free[3 * n + 1], free[3 * n + 2] if is_secure else 0) for n in range(brokers)]
    cluster = Cluster(
        servers=",".join(f"127.0.0.1:{of.plain}" for of in ports),
        secure=",".join(f"127.0.0.1:{of.secure}" for of in ports if of.secure),
        ca=str(folder / "ca.pem") if is_secure else "",
        credentials=str(folder / "credentials.toml") if is_secure else "",
        ports=ports,
        id=base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:22].replace("-", "A"),
    )
    if is_secure:
        make_secrets(folder, cluster)
    jars = fetch()
    for number in range(1, brokers + 1):
        private(folder / f"broker-{number}.properties", properties(folder, cluster, number))
    formatting = ["kafka.tools.StorageTool", "format", "-t", cluster.id, "-c"]
    formats = [
        subprocess.Popen(
            [*java(folder, jars), *formatting, str(folder / f"broker-{number}.properties")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(1, brokers + 1)
    ]
    for process in formats:
        said, _ = process.communicate()
        if process.returncode != 0:
            raise KafkaError(f"Kafka could not prepare its folder {folder}: {said}")
    known.write_text(json.dumps(asdict(cluster)))
    return cluster


def make_secrets(folder: Path, cluster: Cluster) -> None:
    """Make a key with a certificate for 127.0.0.1, and a password."""
    store = folder / "broker.p12"
    keytool = ["keytool", "-keystore", str(store), "-storetype", "PKCS12", "-storepass", STORE_PASSWORD]
    keytool += ["-alias", "broker"]
    made = ["-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", "-validity", "30"]
    made += ["-dname", "CN=127.0.0.1", "-ext", "san=ip:127.0.0.1", "-ext", "bc:critical=ca:true"]
    subprocess.run([*keytool, *made], check=True, capture_output=True)
    private(Path(cluster.credentials), f'username = "{USERNAME}"\npassword = "{secrets.token_urlsafe(24)}"\n')


def properties(folder: Path, cluster: Cluster, number: int) -> str:
    """Return the settings of a broker."""
    ports, brokers = cluster.ports[number - 1], len(cluster.ports)
    listeners = f"PLAINTEXT://127.0.0.1:{ports.plain}"
    secure = []
    if ports.secure:
        listeners += f",SASL_SSL://127.0.0.1:{ports.secure}"
        password = Path(cluster.credentials).read_text().split('password = "')[1].rstrip('"\n')
        module = "org.apache.kafka.common.security"
        plain, scram = f"{module}.plain.PlainLoginModule", f"{module}.scram.ScramLoginModule"
        secure = [
            f"ssl.keystore.location={folder / 'broker.p12'}",
            "ssl.keystore.type=PKCS12",
            f"ssl.keystore.password={STORE_PASSWORD}",
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512",
            # Tests take rights away from the user with a password. All other users have all rights.
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users=User:ANONYMOUS",
            "allow.everyone.if.no.acl.found=true",
            f'listener.name.sasl_ssl.plain.sasl.jaas.config={plain} required user_{USERNAME}="{password}";',
            # Tests add SCRAM users while brokers run.
            f"listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={scram} required;",
        ]
    voters = ",".join(f"{n}@127.0.0.1:{of.controller}" for n, of in enumerate(cluster.ports, 1))
    lines = [
        "process.roles=broker,controller",
        f"node.id={number}",
        f"controller.quorum.voters={voters}",
        f"listeners={listeners},CONTROLLER://127.0.0.1:{ports.controller}",
        f"advertised.listeners={listeners}",
        "controller.listener.names=CONTROLLER",
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
        f"log.dirs={folder / f'data-{number}'}",
        f"offsets.topic.replication.factor={brokers}",
        "offsets.topic.num.partitions=4",
        f"share.coordinator.state.topic.replication.factor={brokers}",
        f"transaction.state.log.replication.factor={brokers}",
        # No wait for further members: groups of tests and experiments are complete from the start.
        "group.initial.rebalance.delay.ms=0",
        "group.min.session.timeout.ms=1000",
        "auto.create.topics.enable=false",
        f"message.max.bytes={RECORD_BYTES_MAX}",
        f"replica.fetch.max.bytes={RECORD_BYTES_MAX}",
        "log.cleaner.dedupe.buffer.size=4194304",
        *secure,
    ]
    return "\n".join(lines) + "\n"


def run(folder: Path, brokers: int, is_secure: bool) -> int:
    """Run the cluster until Ctrl-C or SIGTERM."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    jars = fetch()
    cluster = described(folder, brokers, is_secure)
    ended: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: ended.append(number))
    processes = [start(folder, jars, number) for number in range(1, len(cluster.ports) + 1)]
    try:
        await_ready(folder, cluster, processes, ended)
        if cluster.secure and not ended:
            # The certificate is its own authority.
            Path(cluster.ca).write_text(ssl.get_server_certificate(("127.0.0.1", cluster.ports[0].secure)))
            print(f"with TLS and SASL {cluster.secure}: ca {cluster.ca}, credentials {cluster.credentials}")
        if not ended:
            print(f"ready {cluster.servers}", flush=True)
        while not ended:
            fail_if_ended(folder, processes)
            time.sleep(0.1)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    return 0


def start(folder: Path, jars: Path, number: int) -> "subprocess.Popen[bytes]":
    """Start a broker, which ends with this process."""
    leash = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid())]
    command = [*leash, *java(folder, jars), "kafka.Kafka", str(folder / f"broker-{number}.properties")]
    with (folder / f"broker-{number}.log").open("ab") as log:
        # Ctrl-C is for this process, which then stops its brokers in order.
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0)


def java(folder: Path, jars: Path) -> list[str]:
    """Return the command line of a Kafka program, up to the name of its class."""
    found = subprocess.run(["sh", "-c", "command -v java"], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise KafkaError("java, which runs Kafka, is not installed; run tools/setup --tests")
    logging = folder / "log4j2.properties"
    if not logging.exists():
        logging.write_text(
            "status=error\nrootLogger=WARN,console\nappender.console.type=Console\n"
            "appender.console.name=console\nappender.console.layout.type=PatternLayout\n"
            "appender.console.layout.pattern=%d %p %m (%c)%n\n"
        )
    return [found.stdout.strip(), *JVM, f"-Dlog4j2.configurationFile={logging}", "-cp", f"{jars}/*"]


def await_ready(
    folder: Path, cluster: Cluster, processes: "list[subprocess.Popen[bytes]]", ended: list[int]
) -> None:
    """Wait until every broker accepts connections, on all its ports for clients."""
    end = time.monotonic() + READY_S_MAX
    # A broker opens its ports one after the other.
    for port in [port for of in cluster.ports for port in (of.plain, of.secure) if port]:
        while not ended:
            fail_if_ended(folder, processes)
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > end:
                    raise KafkaError(
                        f"Kafka was not ready after {READY_S_MAX:.0f} s{logged(folder)}"
                    ) from None
                time.sleep(0.05)


def fail_if_ended(folder: Path, processes: "list[subprocess.Popen[bytes]]") -> None:
    """Raise an error if a broker has ended by itself."""
    for number, process in enumerate(processes, 1):
        if process.poll() is not None:
            raise KafkaError(f"broker {number} ended with status {process.returncode}{logged(folder)}")


def logged(folder: Path) -> str:
    """Return a text with the path and the last lines of the first broker's log."""
    lines = (folder / "broker-1.log").read_text(errors="replace").splitlines()
    return f"; its log is {folder}/broker-1.log:\n" + "\n".join(lines[-10:])


def free_ports(count: int) -> list[int]:
    """Return loopback ports that are free at this moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def private(path: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    path.touch(0o600)
    path.chmod(0o600)
    path.write_text(text)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description="Apache Kafka on loopback, for tests and for trying pipelines."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="fetch Kafka's jars into .cache/kafka, if they are not there")
    running = commands.add_parser("run", help="run a cluster until Ctrl-C")
    running.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="how many [1]")
    running.add_argument("--secure", action="store_true", help="with a port for TLS and SASL (PLAIN) as well")
    running.add_argument("--folder", type=Path, help="keep everything in this folder [a new temporary one]")
    options = parser.parse_args()
    try:
        if options.command == "fetch":
            fetch()
            return 0
        if options.folder is not None:
            return run(options.folder.resolve(), options.brokers, options.secure)
        with tempfile.TemporaryDirectory(prefix="mez-kafka-") as folder:
            return run(Path(folder), options.brokers, options.secure)
    except KafkaError as error:
        print(f"kafka: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
