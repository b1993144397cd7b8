"""What applications may do: grants at an edge, and how a program learns of a refusal."""

from typing import Any

import numpy as np
import pytest

import mez


def _image() -> np.ndarray:
    return np.zeros((48, 64, 3), np.uint8)


def test_a_program_does_what_it_was_granted_and_is_told_what_is_missing() -> None:
    """The sentence names the grant and the command."""
    grants = {"app/**": {"watch": ["dock/*"], "read": "dock/*", "observe": "dock/*"}}
    with mez.edge(rights=grants) as edge, mez.publisher("dock/cam1", edge=edge) as cam:
        remote: dict[str, Any] = {"edge": edge.grpc_address, "keys": edge.keys}
        with mez.subscribe("dock/*", **remote) as frames:
            for _ in range(100):
                cam.send(_image())
                try:
                    assert frames.next(timeout=0.2).camera == "dock/cam1"
                    break
                except mez.WaitTimeoutError:
                    continue
            else:
                pytest.fail("no frame came")
        assert [camera.camera for camera in mez.cameras(**remote)] == ["dock/cam1"]
        assert list(mez.read("dock/cam1", held_only=True, **remote))

        with pytest.raises(
            mez.PermissionDenied, match=r"may not watch yard/\*.*mez keys grant app/"
        ) as refused:
            mez.subscribe("yard/*", **remote)
        assert refused.value.reason == "PERMISSION_DENIED"
        assert isinstance(refused.value, PermissionError)
        with pytest.raises(mez.PermissionDenied, match=r"originals fetched from dock/cam1.*held_only"):
            list(mez.read("dock/cam1", **remote))
        with pytest.raises(mez.PermissionDenied, match="see the state of yard/cam1"):
            mez.cameras("yard/cam1", **remote)
        # On the Unix socket this process is the user that the edge runs as.
        with edge.subscribe("yard/*"):
            pass


def test_rights_that_make_no_sense_are_named() -> None:
    """Before anything is started."""
    for rights, says in [
        ({"counter": {"watch": "dock/*"}}, "app/NAME"),
        ({"app/counter": {"wach": "dock/*"}}, "the verbs are watch"),
        ({"app/counter": {"watch": "dock/cam*"}}, "one whole segment"),
    ]:
        with pytest.raises(mez.ArgumentError, match=says) as refused:
            mez.edge(rights=rights)
        assert refused.value.field == "rights"
    with pytest.raises(mez.ArgumentTypeError, match="for each application"):
        mez.edge(rights={"app/counter": "watch"})  # type: ignore[dict-item]
