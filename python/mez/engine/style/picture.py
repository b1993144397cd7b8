"""Draws the picture of the style that comes with Mez, so that no one else has rights to it.

`python -m mez.engine.style.picture FILE.png`: brush strokes that follow a field of swirls, in blue and gold.
"""

import sys
from pathlib import Path
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

SIDE: Final = 512
STROKES: Final = 5200
SEED: Final = 7

# BGR, from dark to light: night, sea, sky, foam, and gold for one stroke in seven.
_COLOURS: Final = ((92, 40, 14), (150, 84, 22), (196, 140, 56), (226, 206, 150))
_GOLD: Final = ((60, 170, 240), (90, 205, 250), (40, 110, 225))


def draw() -> npt.NDArray[np.uint8]:
    """The picture: BGR pixels of shape (512, 512, 3), uint8. The same each time."""
    random = np.random.default_rng(SEED)
    picture = np.full((SIDE, SIDE, 3), _COLOURS[0], np.uint8)
    centres = random.uniform(0, SIDE, (9, 2))
    turns = random.choice([-1.0, 1.0], 9)
    for number in range(STROKES):
        place = random.uniform(-20, SIDE + 20, 2)
        away = place - centres
        distance = np.hypot(away[:, 0], away[:, 1])
        strength = turns * np.exp(-distance / 90) / (distance + 8)
        flow = np.array([-(strength * away[:, 1]).sum(), (strength * away[:, 0]).sum()])
        flow += np.array([0.05, 0.02 * np.sin(place[0] / 60)])
        flow /= np.hypot(*flow) + 1e-9
        # Large strokes first, small ones over them.
        share = number / STROKES
        length, thick = 34 - 20 * share, 11 - 8 * share
        light = np.clip(0.5 + 0.5 * np.sin(distance.min() / 17) + random.normal(0, 0.15), 0, 0.999)
        palette = _GOLD if random.random() < 1 / 7 else _COLOURS
        colour = np.array(palette[int(light * len(palette))]) + random.normal(0, 9, 3)
        ends = [tuple(int(edge) for edge in place + side * flow * length / 2) for side in (-1, 1)]
        shade = [int(level) for level in np.clip(colour, 0, 255)]
        cv2.line(picture, ends[0], ends[1], shade, max(1, round(thick)), cv2.LINE_AA)
        # The bristles' edge, which gives relief.
        dark = [int(level * 0.75) for level in shade]
        aside = np.array([-flow[1], flow[0]]) * thick / 2
        edge = [tuple(int(one) for one in np.array(end) + aside) for end in ends]
        cv2.line(picture, edge[0], edge[1], dark, 1, cv2.LINE_AA)
    return picture


if __name__ == "__main__":
    cv2.imwrite(str(Path(sys.argv[1])), draw())
