"""The network that paints pictures (Johnson et al. 2016, with instance normalisation), as an ONNX file.

Sixteen convolutions: one at full size, two steps down, five residual blocks of two, two steps up, one at
full size. The file takes a picture and gives a picture: uint8 of shape (1, height, width, 3), BGR, height and
width multiples of 4.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mez.engine.style.errors import StyleError

Weights = dict[str, npt.NDArray[np.float32]]
"""By name: `NAME.kernel` (rows, columns, channels in, channels out), `NAME.gain` and `NAME.shift`."""

BLOCKS: Final = 5
STEP: Final = 4
"""The network works on pictures whose height and width are multiples of this."""

EPSILON: Final = 1e-5
"""Added to variances, so that the normalisation of a plain picture stays finite."""

_OPSET: Final = 17


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution, with its normalisation.

    Attributes:
        name: Its name, for weights.
        side: Rows and columns of the kernel.
        inward: Channels that it takes.
        outward: Channels that it makes.
        stride: 2: half the height and width.
        grow: 2: the picture is enlarged before it, to twice the height and width.
        at: Its pixels, as a share of the picture's.
    """

    name: str
    side: int
    inward: int
    outward: int
    stride: int = 1
    grow: int = 1
    at: float = 1.0

    @property
    def kernel(self) -> tuple[int, int, int, int]:
        """The shape of the kernel: rows, columns, channels in, channels out."""
        return self.side, self.side, self.inward, self.outward


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a network is.

    Attributes:
        channels: At full, half and quarter size.
        ends: Rows and columns of the first and the last kernel.
    """

    channels: tuple[int, int, int]
    ends: int

    def layers(self) -> list[Layer]:
        """Its convolutions, in order."""
        full, half, quarter = self.channels
        layers = [
            Layer("first", self.ends, 3, full),
            Layer("down0", 3, full, half, stride=2, at=1 / 4),
            Layer("down1", 3, half, quarter, stride=2, at=1 / 16),
        ]
        for block in range(BLOCKS):
            layers += [Layer(f"block{block}.{part}", 3, quarter, quarter, at=1 / 16) for part in "ab"]
        return [
            *layers,
            Layer("up0", 3, quarter, half, grow=2, at=1 / 4),
            Layer("up1", 3, half, full, grow=2),
            Layer("last", self.ends, full, 3),
        ]

    def operations(self, width: int, height: int) -> float:
        """Multiplications and additions for a picture of this many pixels."""
        each = (2 * layer.at * float(np.prod(layer.kernel)) for layer in self.layers())
        return width * height * sum(each)


SHAPES: Final[Mapping[str, Shape]] = {
    "small": Shape((8, 16, 32), 5),
    "paper": Shape((32, 64, 128), 9),
}
"""`small` is for CPUs. `paper` is that of Johnson et al. and of OpenRTiST."""


def fresh(shape: Shape, seed: int) -> Weights:
    """Weights before training."""
    random = np.random.default_rng(seed)
    weights: Weights = {}
    for layer in shape.layers():
        inward = layer.side * layer.side * layer.inward
        drawn = random.standard_normal(layer.kernel) * np.sqrt(2 / inward)
        weights[f"{layer.name}.kernel"] = drawn.astype(np.float32)
        weights[f"{layer.name}.shift"] = np.zeros(layer.outward, np.float32)
        if layer.name != "last":
            weights[f"{layer.name}.gain"] = np.ones(layer.outward, np.float32)
    # The first pictures are close to grey, where the gradient of the last function is large.
    weights["last.kernel"] *= 0.1
    return weights


def write(path: Path, shape: Shape, weights: Weights, notes: Mapping[str, str]) -> None:
    """Write a network as an ONNX file.

    Args:
        path: The file. It is replaced if it exists.
        shape: How large the network is.
        weights: Its weights.
        notes: Metadata of the file.
    """
    graph = _Graph(weights)
    made = graph.begin()
    for layer in shape.layers():
        if layer.name.endswith(".a"):
            before = made
        made = graph.layer(layer, made, is_active=not layer.name.endswith(".b"))
        if layer.name.endswith(".b"):
            made = graph.node("Add", [made, before])
    graph.end(made)
    graph.save(path, notes)


def read(path: Path, shape: Shape) -> Weights:
    """Read the weights of a file that `write` made.

    Raises:
        StyleError: It is not such a file, or has another shape.
    """
    import onnx
    from onnx import numpy_helper

    try:
        stored = {one.name: numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer}
    except Exception as error:
        raise StyleError(
            f"{path} cannot be read as a network ({error}); give a file of mez style train"
        ) from error
    weights: Weights = {}
    for name, wanted in fresh(shape, 0).items():
        given = stored.get(name)
        if given is not None and name.endswith(".kernel"):
            given = given.transpose(2, 3, 1, 0)
        if given is None or given.shape != wanted.shape:
            found = "none" if given is None else given.shape
            raise StyleError(
                f"{path} has {found} for {name} instead of {wanted.shape}; give the --size of this file"
            )
        weights[name] = np.asarray(given, np.float32)
    return weights


class _Graph:
    """An ONNX graph that is being built."""

    def __init__(self, weights: Weights) -> None:
        from onnx import helper, numpy_helper

        self._helper: Any = helper
        self._array = numpy_helper.from_array
        self._weights = weights
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def constant(self, name: str, value: npt.NDArray[Any]) -> str:
        """A value that is stored in the file."""
        self._constants.append(self._array(np.ascontiguousarray(value), name))
        return name

    def node(self, kind: str, inputs: list[str], **attributes: object) -> str:
        """Add an operation, and return the name of its output."""
        name = f"n{len(self._nodes)}"
        self._nodes.append(self._helper.make_node(kind, inputs, [name], **attributes))
        return name

    def begin(self) -> str:
        """Convert bytes to numbers from -1 to 1, channels first."""
        numbers = self.node("Cast", ["picture"], to=self._helper.TensorProto.FLOAT)
        planes = self.node("Transpose", [numbers], perm=[0, 3, 1, 2])
        self.constant("half", np.full((), 127.5, np.float32))
        self.constant("one", np.full((), 1, np.float32))
        return self.node("Sub", [self.node("Div", [planes, "half"]), "one"])

    def layer(self, layer: Layer, taken: str, is_active: bool) -> str:
        """Add a convolution with its normalisation and activation."""
        name, edge = layer.name, layer.side // 2
        if layer.grow > 1:
            scales = np.array([1, 1, layer.grow, layer.grow], np.float32)
            sizes = self.constant(f"{name}.scales", scales)
            taken = self.node(
                "Resize",
                [taken, "", sizes],
                mode="nearest",
                coordinate_transformation_mode="asymmetric",
                nearest_mode="floor",
            )
        kernel = self.constant(f"{name}.kernel", self._weights[f"{name}.kernel"].transpose(3, 2, 0, 1))
        shift = self.constant(f"{name}.shift", self._weights[f"{name}.shift"])
        inputs = [taken, kernel] if name != "last" else [taken, kernel, shift]
        made = self.node(
            "Conv",
            inputs,
            kernel_shape=[layer.side] * 2,
            strides=[layer.stride] * 2,
            # A stride of 2 needs one row less in front: pictures have an even height and width.
            pads=[edge - (layer.stride - 1)] * 2 + [edge] * 2,
        )
        if name == "last":
            return made
        gain = self.constant(f"{name}.gain", self._weights[f"{name}.gain"])
        made = self.node("InstanceNormalization", [made, gain, shift], epsilon=EPSILON)
        return self.node("Relu", [made]) if is_active else made

    def end(self, made: str) -> None:
        """Convert numbers to bytes. The hyperbolic tangent keeps them within bounds."""
        planes = self.node("Tanh", [made])
        levels = self.node("Mul", [self.node("Add", [planes, "one"]), "half"])
        rows = self.node("Transpose", [self.node("Round", [levels])], perm=[0, 2, 3, 1])
        self._nodes.append(
            self._helper.make_node("Cast", [rows], ["painted"], to=self._helper.TensorProto.UINT8)
        )

    def save(self, path: Path, notes: Mapping[str, str]) -> None:
        """Write the file."""
        import onnx

        bytes_of = self._helper.TensorProto.UINT8
        picture, painted = (
            self._helper.make_tensor_value_info(name, bytes_of, [1, "height", "width", 3])
            for name in ("picture", "painted")
        )
        graph = self._helper.make_graph(self._nodes, "mez style", [picture], [painted], self._constants)
        model = self._helper.make_model(
            graph, opset_imports=[self._helper.make_opsetid("", _OPSET)], producer_name="mez style"
        )
        # A version that the oldest supported runtime reads.
        model.ir_version = 8
        self._helper.set_model_props(model, dict(notes))
        onnx.checker.check_model(model, full_check=True)
        path.write_bytes(model.SerializeToString())
