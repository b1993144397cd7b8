"""The bundled detector finds the people of a real video, and says what it cannot search."""

import subprocess
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from mez.apps.boxes import Box, iou
from mez.apps.pedestrian_hog import STRONG, WEAK, detect

Image = npt.NDArray[np.uint8]
CHECKOUT = Path(__file__).parents[2]

# Points on the bodies of people, read off the frames by eye.
PEOPLE = {
    0: [(267, 262), (513, 195), (663, 279)],
    240: [(48, 213), (248, 198), (464, 301), (626, 239), (680, 326)],
    480: [(415, 225), (479, 285), (594, 285), (625, 325)],
}


@pytest.fixture(scope="module")
def frames() -> dict[int, Image]:
    """Frames of `vtest.avi`, by their number."""
    fetched = subprocess.run([CHECKOUT / "tools/demo-video"], capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        pytest.skip(f"no video: {fetched.stderr.strip()}")
    video = cv2.VideoCapture(str(CHECKOUT / ".cache/video/vtest.avi"))
    taken: dict[int, Image] = {}
    for number in range(max(PEOPLE) + 1):
        held, image = video.read()
        assert held, f"the video ends before frame {number}"
        if number in PEOPLE:
            taken[number] = np.asarray(image, dtype=np.uint8)
    return taken


def holds(box: Box, point: tuple[int, int]) -> bool:
    """Tell whether the point lies in the box."""
    return box.x <= point[0] <= box.x + box.width and box.y <= point[1] <= box.y + box.height


@pytest.mark.parametrize("number", PEOPLE)
def test_people_are_found_where_they_are(frames: dict[int, Image], number: int) -> None:
    """Everybody marked is in a strong box of a person's size, and every such box is on somebody."""
    boxes = [box for box in detect(frames[number], STRONG) if box.height < 190]
    for person in PEOPLE[number]:
        assert any(holds(box, person) for box in boxes), f"nobody found at {person}: {boxes}"
    for box in boxes:
        assert any(holds(box, person) for person in PEOPLE[number]), f"nobody is in {box}"


def test_boxes_come_surest_first_within_the_image(frames: dict[int, Image]) -> None:
    """The weak ones too, and asking for the strong ones only leaves out the others."""
    for image in frames.values():
        boxes = detect(image)
        assert boxes == sorted(boxes, key=lambda box: -box.score)
        assert all(box.score >= WEAK and box.clipped(768, 576) == box for box in boxes)
        assert [box for box in boxes if box.score >= STRONG] == detect(image, STRONG)


def test_grey_images_are_searched_as_well(frames: dict[int, Image]) -> None:
    """The features are gradients: most people are found without colour."""
    for number, people in PEOPLE.items():
        grey = np.asarray(cv2.cvtColor(frames[number], cv2.COLOR_BGR2GRAY), dtype=np.uint8)
        boxes = detect(grey, STRONG)
        found = [person for person in people if any(holds(box, person) for box in boxes)]
        assert len(found) >= len(people) - 1, f"only {found} of {people}"


def test_boxes_of_a_larger_frame_are_in_its_own_pixels(frames: dict[int, Image]) -> None:
    """The scaling inside is undone: twice the pixels, twice the coordinates."""
    larger = np.asarray(cv2.resize(frames[0], (1536, 1152), interpolation=cv2.INTER_CUBIC), dtype=np.uint8)
    for box in detect(frames[0], STRONG):
        wanted = Box(box.x * 2, box.y * 2, box.width * 2, box.height * 2, box.score)
        assert any(iou(wanted, other) > 0.7 for other in detect(larger, STRONG))


@pytest.mark.parametrize(
    "shape", [(1, 1), (3, 3, 3), (577, 769, 3), (2000, 31), (31, 2000, 3), (102, 51, 3), (103, 53, 3)]
)
def test_odd_sizes_without_anybody_give_no_boxes(shape: tuple[int, ...]) -> None:
    """Flat images of any size, also smaller than the window, which OpenCV alone does not survive."""
    assert detect(np.full(shape, 90, dtype=np.uint8)) == []


def test_arrays_that_are_no_images_are_refused_with_the_remedy() -> None:
    """Rather than searched as if they were."""
    with pytest.raises(ValueError, match=r"float32.*astype"):
        detect(np.zeros((200, 200, 3), dtype=np.float32))
    with pytest.raises(ValueError, match=r"\(200, 200, 4\).*alpha"):
        detect(np.zeros((200, 200, 4), dtype=np.uint8))
    with pytest.raises(ValueError, match="no pixels"):
        detect(np.zeros((0, 200, 3), dtype=np.uint8))
