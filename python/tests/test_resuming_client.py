"""The example of a client that resumes, while brokers are killed."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

CLIENT = Path(__file__).parents[2] / "examples" / "resuming_client" / "client.py"
MEZ = Path(sys.executable).with_name("mez")
KILLS = int(os.environ.get("MEZ_KILLS", "4"))

Id = tuple[int, int]


class Site:
    """Brokers of one folder, which are killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "MEZ_KEYS": str(folder / "keys"),
            "MEZ_STATE": str(folder / "state"),
        }
        self.running: dict[str, subprocess.Popen[str]] = {}
        for words in (["keys", "init", "--site", "test"], ["store", "key"]):
            subprocess.run([MEZ, *words], cwd=folder, env=self.environment, check=True, capture_output=True)
        video = "testsrc=size=160x120:rate=20"
        made = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", video, "-t", "2", "-c:v", "mjpeg", "video.avi"]
        subprocess.run(made, cwd=folder, check=True)
        self.link = "127.0.0.1:0"

    def start(self, which: str) -> None:
        """Starts a broker, and waits until it is ready."""
        words = {
            "edge": ["edge", "--listen", self.link, "--grpc", "off", "--enrol", "off", "--socket", "e.sock"],
            "camera": ["camera", "dock/cam1", "--edge", self.link, "--source", "video.avi", "--loop"],
        }[which]
        process = subprocess.Popen(
            [MEZ, *words, "--store", which],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        ready = process.stdout.readline()
        self.running[which] = process
        if which == "edge":
            link = re.search(r"link=(\S+)", ready)
            assert link is not None, ready
            self.link = link[1]

    def kill(self, which: str) -> None:
        """As a power supply does."""
        process = self.running.pop(which)
        process.send_signal(signal.SIGKILL)
        process.communicate()

    def end(self) -> None:
        """Ends all that runs."""
        for which in list(self.running):
            self.kill(which)


class Client:
    """The example as a process, which is killed and started again as well."""

    def __init__(self, site: Site, name: str, *words: str) -> None:
        self.words = [sys.executable, str(CLIENT), "dock/*", "--broker", f"unix:{site.folder}/e.sock"]
        self.words += ["--state", str(site.folder / f"{name}.json"), *words]
        self.said: list[dict[str, object]] = []
        self.start()

    def start(self) -> None:
        """Starts it where it was."""
        self.process = subprocess.Popen(self.words, stdout=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self.read, args=(self.process,))
        self.reader.start()

    def read(self, process: "subprocess.Popen[str]") -> None:
        """Takes down what it says."""
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith("\n"):
                self.said.append(json.loads(line))

    def kill(self) -> None:
        """Without a word."""
        self.process.kill()
        self.process.wait()
        self.reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def frames(self) -> "list[dict[str, object]]":
        """What it got."""
        return [said for said in self.said if said["event"] == "frame"]


def numbers(frame: "dict[str, object]") -> Id:
    """A frame's identity."""
    epoch, sequence = frame["epoch"], frame["sequence"]
    assert isinstance(epoch, int)
    assert isinstance(sequence, int)
    return epoch, sequence


def account(client: Client) -> "tuple[list[Id], set[Id]]":
    """What was delivered, and what was counted: together every number of an epoch."""
    got: list[Id] = []
    counted: set[Id] = set()
    told = False
    for said in client.said:
        assert said["event"] != "error", said
        told |= said["event"] == "not_held"
        if said["event"] != "frame":
            continue
        epoch, sequence = numbers(said)
        if got and got[-1] == (epoch, sequence):
            # It was killed between a frame and its note.
            continue
        if got:
            assert got[-1] < (epoch, sequence)
            assert told or got[-1][0] == epoch, (
                f"{said} after {got[-1]}, and nothing is told of the end before"
            )
            first = got[-1][1] + 1 if got[-1][0] == epoch else 0
            skipped = said["skipped"]
            assert isinstance(skipped, dict)
            assert sum(skipped.values()) == sequence - first, f"{said} after {got[-1]}"
            counted |= {(epoch, number) for number in range(first, sequence)}
        got.append((epoch, sequence))
        told = False
    return got, counted


@pytest.mark.timeout(120 + 6 * KILLS)
def test_it_knows_of_every_frame_whoever_is_killed(tmp_path: Path) -> None:
    """Either broker, and the client, are killed in turn; `MEZ_KILLS=100` does so more often."""
    site = Site(tmp_path)
    clients: list[Client] = []
    try:
        site.start("edge")
        site.start("camera")
        filling, telling = Client(site, "fill", "--fill"), Client(site, "tell")
        clients += [filling, telling]
        deadline = time.monotonic() + 30
        while not all(client.frames() for client in clients):
            assert time.monotonic() < deadline, "no frame in half a minute"
            time.sleep(0.05)
        for kill in range(KILLS):
            time.sleep(0.3 + kill * 617 % 900 / 1000)
            which = ("camera", "edge")[kill % 2]
            site.kill(which)
            if kill % 4 == 3:
                for client in clients:
                    client.kill()
                    client.start()
            time.sleep(kill * 331 % 1500 / 1000)
            site.start(which)
        time.sleep(4)
    finally:
        for client in clients:
            client.kill()
        site.end()
    (got, counted), (told_got, told_counted) = account(filling), account(telling)
    # What the camera's log holds, by its own tool, while nobody writes it.
    export = [str(MEZ), "store", "export", "dock/cam1", "held.mcap", "--store", "camera", "--json"]
    exported = subprocess.run(export, cwd=tmp_path, env=site.environment, capture_output=True, text=True)
    summary = json.loads(exported.stdout)
    print(f"{KILLS} kills: log {summary['frames']}, filled {len(got)} and counted {len(counted)}; ", end="")
    print(f"told {len(told_got)} and counted {len(told_counted)}")
    # Of those that were published before it came and after its last one it cannot know.
    first, last = got[0], got[-1]
    outside = first[1] + 40
    assert len(got) + len(counted) >= summary["frames"] - outside, (summary, first, last)
    assert len(got) >= summary["frames"] - outside, "not all that the camera holds was fetched"
    assert len(set(got)) == len(got)
    # Whatever one got lies within what the other got or knows of.
    known = set(told_got) | told_counted
    unknown = [frame for frame in got if told_got[0] < frame < told_got[-1] and frame not in known]
    ends = {epoch: max(number for of, number in known if of == epoch) for epoch, _ in known}
    # What came at the end of an epoch was told by time.
    assert not [(epoch, number) for epoch, number in unknown if number < ends.get(epoch, 0)], unknown


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
