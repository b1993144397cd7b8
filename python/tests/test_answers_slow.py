"""Pictures that applications make of frames, on their way to a camera behind a slow link."""

import time
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

import mez
from mez_bench.children import Children
from mez_bench.children import mez as mez_command
from tests.support import deliver

_PATIENCE_S = 60.0


@pytest.fixture
def slow_edge(tmp_path: Path) -> Iterator[tuple[mez.Edge, str]]:
    """An edge, and its address at the end of a link of 1 Mbit/s."""
    with mez.edge() as edge, Children(tmp_path) as children:
        words = ["--bits-per-second", "1000000", "--queue-bytes-max", "200000"]
        link = children.start("link", mez_command("measure", "link", "--to", edge.address, *words))
        yield edge, link.ready()


def test_a_picture_for_a_slow_link_has_fewer_pixels_and_is_shown_with_all(
    slow_edge: tuple[mez.Edge, str],
) -> None:
    """The first ones are given up: nobody knows how slow the link is. Smaller ones come in time."""
    edge, address = slow_edge
    # Noise that is a little smooth, so that a smaller picture still resembles it.
    noise = np.random.default_rng(1).integers(0, 256, (60, 80, 3), np.uint8)
    made = cv2.resize(noise, (640, 480), interpolation=cv2.INTER_CUBIC)
    with (
        mez.publisher("cam", edge=address, keys=edge.keys) as camera,
        edge.subscribe("cam") as frames,
        camera.answers(answer_ms=250) as answers,
    ):
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            assert time.monotonic() < deadline, (answers.skipped, frames.answer_counts)
            deliver(camera, frames).answer(made)
            try:
                answer = answers.next(timeout=1.0)
            except mez.WaitTimeoutError:
                continue
            coded = cv2.imdecode(np.frombuffer(answer.payload, np.uint8), cv2.IMREAD_COLOR)
            if coded.shape != made.shape:
                break
        assert coded.shape[1] in (320, 160, 80)
        assert (answer.width, answer.height, answer.image.shape) == (640, 480, (480, 640, 3))
        assert np.abs(answer.image.astype(int) - made).mean() < 60
