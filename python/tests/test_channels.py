"""Cameras that share a declared channel: what an edge tells them, and what they make of it."""

import time

import numpy as np

import mez
from mez import _native

WINDOW = 24
"""Frames of each camera over which is counted."""


def test_cameras_on_a_declared_channel_keep_to_their_caps() -> None:
    """Those that share it leave out half of their frames and more, and the one beside them hardly any.

    Frames are so large that passing them takes time also on one machine, and a bound of a quarter of a
    millisecond leaves room for a small part of one, at tens of gigabits per second too. Nothing else keeps
    a camera from sending, as the one that is on no channel shows.
    """
    noise = np.random.default_rng(1).integers(0, 256, (1000, 1200, 3), np.uint8)
    jpeg = _native.encode_jpeg(noise, 95)
    with (
        mez.edge(channels={"hall": ["dock/*", "gate/*"]}) as edge,
        mez.publisher("dock/cam1", edge=edge) as first,
        mez.publisher("dock/cam2", edge=edge) as second,
        mez.publisher("yard/cam1", edge=edge) as beside,
        edge.subscribe("**", latency_ms=0.25),
    ):
        cameras = (first, second, beside)
        for camera in cameras:
            camera.wait_connected(timeout=30)

        def window() -> list[int]:
            """How many frames of each camera came to the edge, of so many."""
            before = [info.frames_received for info in edge.cameras()]
            for _ in range(WINDOW):
                for camera in cameras:
                    camera.send(jpeg)
                time.sleep(0.05)  # a camera of 20 frames a second; nothing is waited for
            return [info.frames_received - then for info, then in zip(edge.cameras(), before, strict=True)]

        came = window()
        for _ in range(10):
            if came[2] > 0.75 * WINDOW and max(came[:2]) <= WINDOW / 2:
                break
            came = window()
        else:
            raise AssertionError(f"{came} of {WINDOW} came; {edge.cameras()}")
        one, other, own = edge.cameras()
        assert (one.channel, other.channel, own.channel) == ("hall", "hall", None)
        for info in (one, other):
            assert info.share_frame_bytes is not None and info.share_frame_bytes < len(jpeg) / 2
            assert info.channel_bits_per_second is not None and info.channel_bits_per_second > 0
        assert (own.share_frame_bytes, own.channel_bits_per_second) == (None, None)


def test_one_pattern_needs_no_list() -> None:
    """A text by itself is one pattern, and several are whatever can be gone through."""
    patterns = (f"yard/cam{number}" for number in range(3))
    with mez.edge(channels={"hall:sum": "dock/*", "yard": patterns}) as edge:
        for name in ("dock/cam1", "yard/cam2", "gate/cam1"):
            with mez.publisher(name, edge=edge) as camera:
                camera.wait_connected(timeout=30)
        told = {info.camera: info.channel for info in edge.cameras()}
        assert told == {"dock/cam1": "hall", "gate/cam1": None, "yard/cam2": "yard"}
