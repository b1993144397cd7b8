"""Trains a network to paint in the style of a picture (Johnson et al. 2016) without flicker.

Consecutive frames of a static camera differ only by noise. A network that was trained on single pictures
paints them differently, which is visible as flicker. So each picture is painted twice, once with noise, and
the difference is part of the loss.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import cv2
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from mez.engine.style import loss, network
from mez.engine.style.errors import StyleError
from mez.engine.style.network import Layer, Shape, Weights

Image = npt.NDArray[np.uint8]
Arrays = dict[str, jax.Array]

TELL_S: Final = 15.0
"""The interval of progress lines, in seconds."""

NOISE_LEVELS: Final = 10.0
"""The largest standard deviation of the noise that must not change painted pictures, in levels of 255."""

SIDE_MIN: Final = 128
"""The smallest shorter side of a photograph, in pixels."""

_SUFFIXES: Final = (".jpg", ".jpeg", ".png")
_BETA1: Final = 0.9
_BETA2: Final = 0.999


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a style is trained.

    Attributes:
        steps: Number of steps.
        side: Rows and columns of the pictures of a step, in pixels. A multiple of 16.
        batch: Number of pictures of a step.
        style: The weight of the style. That of the content is 1.
        tone: The weight of light and dark.
        flicker: The weight of flicker. 0: flicker is ignored.
        smooth: The weight of differences between adjacent pixels, which cost bytes.
        rate: The learning rate.
        style_side: The longer side of the style's picture, in pixels. A larger one gives larger strokes.
        seed: The seed for the first weights, crops and noise.
    """

    steps: int = 1500
    side: int = 128
    batch: int = 2
    style: float = 6.0
    tone: float = 2.0
    flicker: float = 60.0
    smooth: float = 1.0
    rate: float = 3e-3
    style_side: int = 256
    seed: int = 1


class Losses(NamedTuple):
    """The parts of the loss, unweighted."""

    content: jax.Array
    style: jax.Array
    tone: jax.Array
    flicker: jax.Array


class Photographs:
    """Random crops of photographs.

    Args:
        folder: The folder of `.jpg` and `.png` files, with its subfolders.
        seed: The seed of the random numbers.

    Raises:
        StyleError: There are no pictures.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in _SUFFIXES)
        read = (cv2.imread(str(file), cv2.IMREAD_COLOR) for file in files)
        self._pictures = [one for one in read if one is not None and min(one.shape[:2]) >= SIDE_MIN]
        if not self._pictures:
            raise StyleError(
                f"{folder} has no photographs of {SIDE_MIN} pixels or more; give .jpg or .png files"
            )
        self._random = np.random.default_rng(seed)

    def batch(self, count: int, side: int) -> npt.NDArray[np.float32]:
        """Crops of several sizes, scaled to one size: shape (count, side, side, 3), 0 to 255."""
        return np.stack([self._piece(side) for _ in range(count)]).astype(np.float32)

    def _piece(self, side: int) -> npt.NDArray[Any]:
        random = self._random
        picture = self._pictures[random.integers(len(self._pictures))]
        high, wide = picture.shape[:2]
        cut = int(random.integers(min(side, high, wide), min(high, wide) + 1))
        top, left = random.integers(high - cut + 1), random.integers(wide - cut + 1)
        piece = picture[top : top + cut, left : left + cut]
        piece = cv2.resize(piece, (side, side), interpolation=cv2.INTER_AREA)
        return piece[:, ::-1] if random.random() < 0.5 else piece


def painted(weights: Arrays, shape: Shape, pictures: jax.Array) -> jax.Array:
    """The network's output for pictures: BGR, 0 to 255, of shape (count, height, width, 3)."""
    now = pictures / 127.5 - 1
    before = now
    for layer in shape.layers():
        if layer.name.endswith(".a"):
            before = now
        now = _layer(weights, layer, now)
        if layer.name.endswith(".b"):
            now = now + before
    return (jnp.tanh(now) + 1) * 127.5


def _layer(weights: Arrays, layer: Layer, taken: jax.Array) -> jax.Array:
    if layer.grow > 1:
        taken = taken.repeat(layer.grow, 1).repeat(layer.grow, 2)
    made = jax.lax.conv_general_dilated(
        taken,
        weights[f"{layer.name}.kernel"],
        (layer.stride, layer.stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    if layer.name == "last":
        return made + weights["last.shift"]
    mean = made.mean((1, 2), keepdims=True)
    deviation = jnp.sqrt(made.var((1, 2), keepdims=True) + network.EPSILON)
    made = (made - mean) / deviation * weights[f"{layer.name}.gain"] + weights[f"{layer.name}.shift"]
    return made if layer.name.endswith(".b") else jax.nn.relu(made)


def train(
    style: Image,
    photographs: Photographs,
    shape: Shape,
    recipe: Recipe,
    kernels: loss.Kernels,
    tell: Callable[[str], object],
    start: Weights | None = None,
    save: Callable[[Weights], object] | None = None,
) -> Weights:
    """Train a network.

    Args:
        style: The picture whose style it learns: BGR.
        photographs: The pictures that it learns to paint.
        shape: Its size.
        recipe: How it is trained.
        kernels: The loss network.
        tell: Called with a progress line every `TELL_S` seconds.
        start: The first weights. Default: random weights.
        save: Called with the weights at each progress line.

    Raises:
        StyleError: The weights became infinite.
    """
    wanted = _wanted(style, kernels, recipe.style_side)
    first = network.fresh(shape, recipe.seed) if start is None else start
    weights = {name: jnp.asarray(value) for name, value in first.items()}
    nothing = {name: jnp.zeros_like(value) for name, value in weights.items()}
    moments = (nothing, nothing)
    step = jax.jit(functools.partial(_step, shape=shape, recipe=recipe, kernels=kernels, wanted=wanted))
    key = jax.random.key(recipe.seed)
    began_s = told_s = time.monotonic()
    for number in range(1, recipe.steps + 1):
        pictures = jnp.asarray(photographs.batch(recipe.batch, recipe.side))
        weights, moments, parts = step(weights, moments, number, jax.random.fold_in(key, number), pictures)
        if time.monotonic() - told_s < TELL_S and number < recipe.steps:
            continue
        told_s = time.monotonic()
        if not all(np.isfinite(part) for part in parts):
            raise StyleError(f"step {number}: the loss is not finite; give a lower --rate")
        said = ", ".join(f"{name} {float(part):.4f}" for name, part in parts._asdict().items())
        tell(f"step {number} of {recipe.steps}, {told_s - began_s:.0f} s: {said}")
        if save is not None:
            save(_plain(weights))
    return _plain(weights)


def _plain(weights: Arrays) -> Weights:
    return {name: np.asarray(value) for name, value in weights.items()}


def _wanted(style: Image, kernels: loss.Kernels, side: int) -> Arrays:
    """The style of a picture."""
    scale = side / max(style.shape[:2])
    size = [max(16, round(edge * scale) // 16 * 16) for edge in style.shape[:2]]
    small = cv2.resize(style, (size[1], size[0]), interpolation=cv2.INTER_AREA)
    found = loss.features(kernels, jnp.asarray(small, jnp.float32)[None], loss.STYLE_LAYERS[-1])
    return loss.grams(found)


def _step(
    weights: Arrays,
    moments: tuple[Arrays, Arrays],
    number: jax.Array,
    key: jax.Array,
    pictures: jax.Array,
    *,
    shape: Shape,
    recipe: Recipe,
    kernels: loss.Kernels,
    wanted: Arrays,
) -> tuple[Arrays, tuple[Arrays, Arrays], Losses]:
    """One step of Adam (Kingma and Ba 2015)."""

    def judged(weights: Arrays) -> tuple[jax.Array, Losses]:
        made = painted(weights, shape, pictures)
        found = loss.features(kernels, made, loss.STYLE_LAYERS[-1])
        shown = loss.features(kernels, pictures, loss.CONTENT_LAYER)[loss.CONTENT_LAYER]
        strength, noise = jax.random.split(key)
        deviation = NOISE_LEVELS * jax.random.uniform(strength, (len(pictures), 1, 1, 1))
        noisy = jnp.clip(pictures + deviation * jax.random.normal(noise, pictures.shape), 0, 255)
        flicker = jnp.zeros(())
        if recipe.flicker:
            flicker = jnp.mean((painted(weights, shape, noisy) - made) ** 2) / 255**2
        parts = Losses(
            loss.content(found, shown), loss.style(found, wanted), loss.tone(made, pictures), flicker
        )
        rough = (jnp.abs(jnp.diff(made, axis=1)).mean() + jnp.abs(jnp.diff(made, axis=2)).mean()) / 255
        weighted = recipe.style * parts.style + recipe.tone * parts.tone + recipe.flicker * flicker
        sum_of = parts.content + weighted + recipe.smooth * rough
        return sum_of, parts

    gradients, parts = jax.grad(judged, has_aux=True)(weights)
    first = jax.tree.map(lambda m, g: _BETA1 * m + (1 - _BETA1) * g, moments[0], gradients)
    second = jax.tree.map(lambda m, g: _BETA2 * m + (1 - _BETA2) * g * g, moments[1], gradients)
    # The learning rate decreases towards the end.
    rate = recipe.rate * (0.05 + 0.95 * 0.5 * (1 + jnp.cos(jnp.pi * number / recipe.steps)))
    rate = rate * jnp.sqrt(1 - _BETA2**number) / (1 - _BETA1**number)
    moved = jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + 1e-8), weights, first, second)
    return moved, (first, second), parts


def read_picture(path: Path) -> Image:
    """Read the picture of a style, BGR.

    Raises:
        StyleError: It is not a picture.
    """
    picture = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if picture is None:
        raise StyleError(f"{path} is not a picture that OpenCV reads; give a .jpg or .png file")
    return np.asarray(picture, np.uint8)


def notes_of(recipe: Recipe, size: str, style: Path) -> dict[str, str]:
    """The metadata of a trained file."""
    return {
        "mez_style": "1",
        "size": size,
        "style": style.name,
        "steps": str(recipe.steps),
        "flicker": str(recipe.flicker),
    }
