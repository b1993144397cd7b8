"""The wheel that `make wheel` builds is a whole Mez, in an environment that has nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import mez
from mez import _native
from tests.support import picture

CHECKOUT = Path(__file__).parents[2]
# Tests have a home of their own, in which cargo would fetch and rustup install everything anew.
HOME = os.environ["HOME"]

# Frames that are encoded need no NumPy, which pip would otherwise bring along.
ROUND_TRIP = """
import pathlib, sys
import mez

assert pathlib.Path(mez.__file__).is_relative_to(sys.prefix), mez.__file__
jpeg = pathlib.Path("picture.jpg").read_bytes()
contract = dict(latency_ms=100, accuracy=0.9, profile="pedestrian-hog-vtest")
with (
    mez.edge() as edge,
    mez.publisher("dock/cam1", edge=edge) as camera,
    edge.subscribe("dock/*", timeout=0.1, **contract) as frames,
):
    camera.wait_connected(timeout=30)
    for _ in range(300):
        camera.send(jpeg)
        try:
            frame = frames.next()
            break
        except mez.WaitTimeoutError:
            pass
    print(frame.camera, frame.encoding, frame.contract.state != "")
"""


@pytest.mark.timeout(1500)
def test_the_wheel_works_where_there_is_nothing_else(tmp_path: Path) -> None:
    """Installed without an index and without anything beside it: a round trip, the command, the profile.

    Its symbols stay in, because nothing has to be compiled then.
    """
    built = subprocess.run(
        [CHECKOUT / "tools" / "wheel", *(["--locked"] if os.environ.get("CI") else [])],
        env=os.environ | {"HOME": HOME, "WHEELS": str(tmp_path / "wheels"), "STRIP": "no"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = (tmp_path / "wheels").iterdir()
    assert built.stdout.strip() == str(wheel)

    place = tmp_path / "vision"
    python, command = place / "bin" / "python", place / "bin" / "mez"
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MEZ_"))
    }

    def done(*words: Path | str) -> str:
        run = subprocess.run(
            words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
        )
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout

    done(sys.executable, "-m", "venv", place)
    done(python, "-m", "pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check", wheel)
    assert done(command, "--version") == f"mez {mez.__version__}\n"
    assert "mez camera dock/cam1 --edge" in done(command, "camera", "--help")
    (tmp_path / "picture.jpg").write_bytes(_native.encode_jpeg(picture(1), 90))
    assert done(python, "-c", ROUND_TRIP) == "dock/cam1 jpeg True\n"
    # What the package needs for more is named.
    demo = subprocess.run(
        [command, "demo"], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert demo.returncode == 1 and "pip install opencv-python-headless" in demo.stderr, demo.stderr
