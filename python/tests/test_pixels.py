"""Frames as other libraries want them, and names of rungs."""

import io
import re
import sys
import types
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

import mez
from mez import _native
from tests.support import deliver, picture


@pytest.fixture
def frame(edge: mez.Edge) -> mez.Frame:
    """A frame whose left half is blue and whose right half is dark."""
    image = np.zeros((48, 64, 3), np.uint8)
    image[:, :32, 0] = 255
    with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam") as frames:
        return deliver(camera, frames, image)


def test_colours_come_in_the_order_that_was_asked_for(frame: mez.Frame) -> None:
    """What is blue is so for OpenCV, for NumPy, for Pillow and for PyTorch."""
    assert frame.image[24, 8, 0] > 240 > 10 > frame.image[24, 8, 2]
    assert frame.rgb.shape == (48, 64, 3) and frame.rgb.dtype == np.uint8 and frame.rgb.flags.c_contiguous
    assert np.array_equal(frame.rgb[:, :, 2], frame.image[:, :, 0])
    shown = frame.pil()
    assert (shown.mode, shown.size) == ("RGB", (64, 48))
    assert np.array_equal(np.asarray(shown), frame.rgb)
    planes = frame.tensor("numpy")
    assert planes.shape == (3, 48, 64) and planes.dtype == np.float32 and planes.flags.c_contiguous
    assert np.array_equal((planes * 255).round().astype(np.uint8).transpose(1, 2, 0), frame.rgb)


def test_a_tensor_is_torchs_where_torch_is(frame: mez.Frame, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made without a copy; where there is no torch, the error says what to install."""
    torch = types.ModuleType("torch")
    torch.from_numpy = lambda planes: ("tensor", planes)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    kind, planes = frame.tensor()
    assert kind == "tensor" and np.array_equal(planes, frame.tensor("numpy"))
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(mez.MissingPackageError, match="pip install torch"):
        frame.tensor()
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match="pip install pillow"):
        frame.pil()
    with pytest.raises(mez.ArgumentError, match='"torch" or "numpy"'):
        frame.tensor("jax")  # type: ignore[call-overload]


def test_a_frame_is_saved_as_it_came_or_encoded(frame: mez.Frame, tmp_path: Path) -> None:
    """The ending of the file says which."""
    frame.image[:] = 7  # Drawn on, which does not change what came.
    frame.save(tmp_path / "as_it_came.JPG")
    assert (tmp_path / "as_it_came.JPG").read_bytes() == bytes(frame.payload)
    frame.save(str(tmp_path / "encoded.png"))
    with PIL.Image.open(tmp_path / "encoded.png") as opened:
        assert np.array_equal(np.asarray(opened)[:, :, ::-1], frame.image)
    # As pixels that were published raw.
    pixels = picture(20)
    frame.encoding, frame.payload, frame._image = "bgr8", memoryview(pixels.tobytes()), None
    frame.save(tmp_path / "encoded.jpeg", quality=50)
    assert (tmp_path / "encoded.jpeg").read_bytes() == _native.encode_jpeg(pixels, 50)
    for path, field in ((tmp_path / "frame.tiff", "path"), (tmp_path / "frame", "path")):
        with pytest.raises(mez.ArgumentError, match=r"ends in \.jpg, \.jpeg or \.png") as refused:
            frame.save(path)
        assert refused.value.field == field
    with pytest.raises(mez.ArgumentError, match="from 1 to 100"):
        frame.save(tmp_path / "a.jpg", quality=0)


def test_png_keeps_every_pixel() -> None:
    """Also where the array has gaps, and is grey."""
    for image in (picture(3), picture(3)[::2, ::2], picture(3)[:, :, 0]):
        with PIL.Image.open(io.BytesIO(_native.encode_png(image))) as opened:
            decoded = np.asarray(opened)
        assert np.array_equal(decoded[:, :, ::-1] if decoded.ndim == 3 else decoded, image)


def test_the_default_ladder_and_the_names_that_are_explained() -> None:
    """Each name means something, and each rung but the first is smaller than the frame."""
    names = mez.rungs()
    assert names[0] == "original" and names[1] == "h264/q24" and names[-1] == "h264/w640/q36"
    assert all(rung.startswith("tiles/") for rung in mez.rungs(640, 480, family="tiles")[1:])
    stills = mez.rungs(768, 576, family="jpeg")
    assert "jpeg/w384/q70/420" in stills
    assert mez.rungs.__doc__ is not None
    explained = re.findall(r"^    ((?:original|jpeg|tiles|h264)\S*)  ", mez.rungs.__doc__, re.MULTILINE)
    assert len(explained) == 5
    for rung in [*names, *stills, *explained]:
        _native.rung_facts(rung, 768, 576)
    for wrong in ({"width": 0}, {"height": 1.5}, {"family": "mpeg"}):
        with pytest.raises(mez.Error) as refused:
            mez.rungs(**wrong)
        assert refused.value.field == next(iter(wrong))
