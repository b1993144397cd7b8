"""The wheel that `make wheel` builds is a whole Mez, in an environment that has nothing else."""

import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import mez
from mez import _native
from tests.support import picture

CHECKOUT = Path(__file__).parents[2]
# Tests have a home of their own, in which cargo would fetch and rustup install everything anew.
HOME = os.environ["HOME"]

NETWORKS = ["nanodet-416.onnx", "coco.txt", "LICENSE-nanodet.txt", "LICENSE-human-models.txt"]

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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout. Its symbols stay in, because nothing has to be compiled then."""
    wheels = tmp_path_factory.mktemp("wheels")
    built = subprocess.run(
        [CHECKOUT / "tools" / "wheel", *(["--locked"] if os.environ.get("CI") else [])],
        env=os.environ | {"HOME": HOME, "WHEELS": str(wheels), "STRIP": "no"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = wheels.iterdir()
    assert built.stdout.strip() == str(wheel)
    return wheel


def clean_environment() -> dict[str, str]:
    """Without what would lead Python or Mez to this checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MEZ_"))}


@pytest.mark.timeout(1500)
def test_the_wheel_works_where_there_is_nothing_else(wheel: Path, tmp_path: Path) -> None:
    """Installed without an index and without anything beside it: a round trip, the command, the profile."""
    place = tmp_path / "vision"
    python, command = place / "bin" / "python", place / "bin" / "mez"
    environment = clean_environment()

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
    # Video is asked for by default. Its pixels need numpy, which is not there.
    assert done(python, "-c", ROUND_TRIP) == "dock/cam1 h264 True\n"
    # What the package needs for more is named.
    demo = subprocess.run(
        [command, "demo"], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert demo.returncode == 1 and "pip install 'opencv-python-headless<5' matplotlib rich" in demo.stderr, (
        demo.stderr
    )


@pytest.mark.timeout(1500)
def test_pipelines_that_come_with_mez_are_in_the_wheel_with_the_network(wheel: Path) -> None:
    """And the licences of the network beside it."""
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
    networks = {f"mez/apps/networks/{name}" for name in NETWORKS}
    assert {"mez/pipelines/faces.toml", "mez/pipelines/objects.toml"} | networks <= names


@pytest.mark.timeout(1500)
def test_the_example_of_a_new_environment_works(wheel: Path, tmp_path: Path) -> None:
    """Without an index, where the packages are there: the command runs, and boxes come back."""
    fetched = subprocess.run([CHECKOUT / "tools/demo-video"], capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        pytest.skip(f"no video: {fetched.stderr.strip()}")
    beside = tmp_path / "beside"
    beside.mkdir()
    # All that the extra `apps` names, in versions that it takes: there is no index to get others from.
    for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not path.name.startswith(("mez", "pip", "setuptools", "distutils", "_")):
            (beside / path.name).symlink_to(path)
    environment = clean_environment() | {
        "PATH": f"{sys.base_prefix}/bin:{os.environ['PATH']}",
        "PYTHONPATH": str(beside),
        "PIP_NO_INDEX": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    words = [CHECKOUT / "examples" / "own_environment.sh", wheel, tmp_path / "vision"]
    run = subprocess.run(
        [*words, CHECKOUT / ".cache/video/vtest.avi"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"mez {mez.__version__}\n" in run.stdout
    assert re.search(r"^<Frame dock/cam1 .*: [1-9]\d* boxes came back to the camera$", run.stdout, re.M), (
        run.stdout
    )
