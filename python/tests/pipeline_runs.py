"""What tests of `mez pipeline run` share: a pipeline as people run it, whose workers are processes."""

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mez
from tests.pipelines import until
from tests.pipelines_kafka import Kafka
from tests.support import picture

STAGES = '''
import os, signal, time
from pathlib import Path


def detect(record):
    """Two records of each frame: where something is, and a crop."""
    print("what a stage prints is no report")
    record.mark("found")
    yield record.derive({"number": record.frame.sequence}, headers={"half": "0"})
    yield record.picture(record.image[:8, :8], headers={"half": "1"})


class Count:
    """Knows how many it has seen, and misbehaves where a test asks for it."""

    def __init__(self, folder, poison=-1):
        self.folder, self.poison = Path(folder), poison

    def __call__(self, record):
        number = record.frame.sequence
        if self.asked(f"die-{number}"):
            os.kill(os.getpid(), signal.SIGKILL)
        if (self.folder / f"deadly-{number}").exists() and record.headers["half"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.asked(f"hang-{number}"):
            time.sleep(3600)
        if number == self.poison:
            raise ValueError("no face in it")
        while (self.folder / "wait").exists():
            time.sleep(0.01)
        return record.derive({"number": number, "half": record.headers["half"], "pid": os.getpid()})

    def asked(self, name):
        """Whether a test asks for it, and nobody did it yet: both halves may be worked on at once."""
        try:
            (self.folder / name).unlink()
        except FileNotFoundError:
            return False
        return True


def hog(record, folder):
    """Needs more memory with every record."""
    hog.held.append(bytearray(os.urandom(1 << 20) * 64))
    return record.derive(os.getpid())


hog.held = []
'''


class Running:
    """A pipeline that runs, and what it says.

    Args:
        tmp_path: The folder of its file.
        socket: The edge's socket.
        kafka: The cluster that carries what `detect` makes; `None`: the edge does.
    """

    def __init__(self, tmp_path: Path, socket: Path, kafka: Kafka | None) -> None:
        self.folder = tmp_path
        self.kafka = kafka
        self.mez_table = f'edge = "unix://{socket}"'
        self.kafka_table = "" if kafka is None else f'servers = "{kafka.server}"\npartitions = 4'
        self.file = tmp_path / "faces.toml"
        self.said: list[str] = []
        # Of this test alone: topics of one cluster are shared by all tests.
        self.name = "faces" if kafka is None else kafka.name()
        (tmp_path / "stages.py").write_text(STAGES)

    def write(self, stages: str, head: str = "") -> Path:
        """The file: `count` behind `detect`, on the bus of this test; what they make goes to the edge."""
        bus = f"[kafka]\n{self.kafka_table}\n" if self.kafka_table else ""
        text = f'[pipeline]\nname = "{self.name}"\n{head}\n[mez]\n{self.mez_table}\n{bus}{stages}'
        self.file.write_text(text)
        return self.file

    def usual(self, more: str = "", head: str = "") -> Path:
        """Two stages. What the last one makes is plain, on the edge."""
        first = "kafka" if self.kafka_table else "mez"
        return self.write(
            f"""
[stage.detect]
run = "stages.py:detect"
cameras = "dock/*"
bus = "{first}"

[stage.count]
run = "stages.py:Count"
after = "detect"
workers = 2
bus = "mez"
plain = true
options.folder = "{self.folder}"
{more}""",
            head,
        )

    def command(self, *words: str) -> list[str]:
        """A command about it."""
        return [sys.executable, "-P", "-m", "mez", "pipeline", words[0], str(self.file), *words[1:]]

    def ask(self, *words: str) -> str:
        """What a command says."""
        done = subprocess.run(self.command(*words), capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def status(self) -> dict[str, Any]:
        """What `mez pipeline status --json` reads, without the start of an interpreter."""
        found = self.folder / "state" / "pipelines" / self.name / "status.json"
        told: dict[str, Any] = (
            json.loads(found.read_text()) if found.exists() else {"state": "", "pid": 0, "stages": {}}
        )
        return told

    @contextlib.contextmanager
    def run(self, expect: int = 0) -> Iterator[subprocess.Popen[str]]:
        """Run it until Ctrl-C at the end of the `with`, unless it was killed before."""
        with self.started() as process:
            until(
                self.status,
                lambda told: (told["state"], told["pid"]) == ("running", process.pid),
                "it runs",
            )
            yield process
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                assert self.ended(process) == expect, self.said

    @contextlib.contextmanager
    def started(self) -> Iterator[subprocess.Popen[str]]:
        """Start it. What it says is in `said`."""
        said: list[str] = []
        self.said = said
        with subprocess.Popen(
            self.command("run"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            output = process.stdout
            assert output is not None
            # By a thread: whoever waits for a sentence waits for nothing else.
            self._listening = threading.Thread(
                target=lambda: said.extend(map(str.rstrip, output)), daemon=True
            )
            self._listening.start()
            try:
                yield process
            finally:
                process.kill()
                self._listening.join(60)

    def ended(self, process: subprocess.Popen[str]) -> int:
        """Its exit status, once it has ended and all that it said was read."""
        status = process.wait(60)
        self._listening.join(60)
        return status

    def hears(self, text: str) -> str:
        """The line with this text, once it was said."""
        lines = until(
            lambda: list(self.said), lambda said: any(text in line for line in said), f"it says {text!r}"
        )
        return next(line for line in lines if text in line)

    def counted(self, results: mez.Subscription, count: int) -> list[dict[str, Any]]:
        """The next results of the last stage."""
        return [results.next(timeout=60).data for _ in range(count)]


def publish(camera: mez.Publisher, count: int) -> None:
    """Frames, one after the other, each once the one before has crossed."""
    camera.wait_connected(timeout=30)
    for _ in range(count):
        sent = camera.send(picture(camera.published % 90))
        assert sent is not None
