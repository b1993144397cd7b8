"""How frames send replies and answers."""

from typing import Protocol

from mez import _detections
from mez._overlay import Overlay
from mez.errors import ImageError


class Replier(Protocol):
    """Takes replies and answers to frames."""

    def answer(self, camera: str, epoch: int, sequence: int, image: object) -> None:
        """Send a picture that was made of a frame, without waiting."""

    def answer_overlay(self, camera: str, epoch: int, sequence: int, image: object) -> None:
        """Send an overlay, without waiting."""

    def answer_boxes(
        self,
        camera: str,
        epoch: int,
        sequence: int,
        published: tuple[int, int],
        detections: tuple[tuple[int, int], list[_detections.Parts]],
    ) -> None:
        """Send boxes as an answer, without waiting."""

    def reply(self, camera: str, epoch: int, sequence: int, payload: bytes) -> None:
        """Send a reply, without waiting."""

    def reply_detections(
        self,
        camera: str,
        epoch: int,
        sequence: int,
        published: tuple[int, int],
        detections: tuple[tuple[int, int], list[_detections.Parts]],
    ) -> None:
        """Send detections, without waiting."""


def send_answer(
    replier: Replier,
    frame: tuple[str, int, int],
    sizes: tuple[tuple[int, int], tuple[int, int]],
    answer: object,
) -> None:
    """Send pixels, an overlay, boxes, or bytes, as `Frame.answer` describes them.

    Args:
        replier: What sends it.
        frame: The camera's name, the epoch and the sequence.
        sizes: Width and height of `Frame.image`, and of the frame as it was published.
        answer: The answer.
    """
    if isinstance(answer, Overlay):
        replier.answer_overlay(*frame, answer.pixels)
        return
    if hasattr(answer, "shape"):
        # An array is always a picture.
        shape, kind = tuple(answer.shape), str(getattr(answer, "dtype", ""))
        if kind != "uint8" and len(shape) == 2 and shape[1] in (4, 5, 6):
            raise ImageError(
                f"an array of shape {shape} and type {kind} is no picture; wrap boxes in mez.Detections"
            )
        replier.answer(*frame, answer)
        return
    found = _detections.of(answer)
    if found is None:
        replier.answer(*frame, answer)
        return
    size, published = sizes
    replier.answer_boxes(*frame, published, (found.size or size, found._parts()))
