"""Loads networks for ONNX Runtime (`pip install onnxruntime`)."""

import importlib
from pathlib import Path
from typing import Any


class OnnxError(Exception):
    """A model cannot be used. The message says why, and what to do."""


def session(path: Path, threads: int = 1) -> Any:  # noqa: ANN401, onnxruntime may not be there
    """Load a network that takes one picture, for the processor.

    Args:
        path: The `.onnx` file.
        threads: Processor threads of one picture.

    Returns:
        An `onnxruntime.InferenceSession` with one input: float32 of shape (1, 3, height, width).

    Raises:
        OnnxError: It cannot be used.
    """
    try:
        onnxruntime: Any = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise OnnxError("ONNX Runtime is not installed; install it with: pip install onnxruntime") from error
    if not path.is_file():
        raise OnnxError(f"there is no model {path}; give an .onnx file")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    options.log_severity_level = 3
    try:
        loaded: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise OnnxError(f"{path} cannot be loaded by ONNX Runtime ({error}); export it again") from error
    inputs = loaded.get_inputs()
    shape = inputs[0].shape if len(inputs) == 1 else []
    if len(shape) != 4 or shape[1] != 3 or inputs[0].type != "tensor(float)":
        described = ", ".join(f"{one.name} {one.type} {one.shape}" for one in inputs)
        raise OnnxError(
            f"{path} takes {described}; it has to take one image, float32 of shape (1, 3, height, width)"
        )
    return loaded
