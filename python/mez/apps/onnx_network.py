"""Loads networks for ONNX Runtime (`pip install onnxruntime`)."""

import importlib
from pathlib import Path
from typing import Any, Final


class OnnxError(Exception):
    """A model cannot be used. The message says why, and what to do."""


_PROVIDERS: Final = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


def session(path: Path, threads: int = 1, device: str = "cpu") -> Any:  # noqa: ANN401, onnxruntime may not be there
    """Load a network that takes one picture.

    Args:
        path: The `.onnx` file.
        threads: Processor threads of one picture.
        device: `"cpu"` or `"cuda"`.

    Returns:
        An `onnxruntime.InferenceSession` with one input: float32 of shape (1, 3, height, width).

    Raises:
        OnnxError: It cannot be used.
    """
    loaded = load(path, threads, device)
    inputs = loaded.get_inputs()
    shape = inputs[0].shape if len(inputs) == 1 else []
    if len(shape) != 4 or shape[1] != 3 or inputs[0].type != "tensor(float)":
        raise OnnxError(
            f"{path} takes {described(inputs)}; "
            "it must take one image, float32 of shape (1, 3, height, width)"
        )
    return loaded


def load(path: Path, threads: int = 1, device: str = "cpu") -> Any:  # noqa: ANN401, onnxruntime may not be there
    """Load any network.

    Args:
        path: The `.onnx` file.
        threads: Processor threads of one run.
        device: `"cpu"` or `"cuda"`.

    Returns:
        An `onnxruntime.InferenceSession`.

    Raises:
        OnnxError: It cannot be loaded, or the device is not available.
    """
    try:
        onnxruntime: Any = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise OnnxError("ONNX Runtime is not installed; install it with: pip install onnxruntime") from error
    if not path.is_file():
        raise OnnxError(f"there is no model {path}; give an .onnx file")
    provider = _PROVIDERS[device]
    if provider not in onnxruntime.get_available_providers():
        raise OnnxError(_no_device(device, "this ONNX Runtime was built without it"))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    options.log_severity_level = 3
    # The processor runs what the device cannot.
    providers = list(dict.fromkeys([provider, _PROVIDERS["cpu"]]))
    try:
        loaded: Any = onnxruntime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:
        raise OnnxError(f"{path} cannot be loaded by ONNX Runtime ({error}); export it again") from error
    # ONNX Runtime uses the processor without an error if a library or the driver is missing.
    if provider not in loaded.get_providers():
        raise OnnxError(_no_device(device, "ONNX Runtime cannot start it (driver, CUDA, cuDNN)"))
    return loaded


def described(values: Any) -> str:  # noqa: ANN401, of onnxruntime
    """The inputs or outputs of a network, for people."""
    return ", ".join(f"{one.name} {one.type} {one.shape}" for one in values)


def _no_device(device: str, why: str) -> str:
    return f"there is no device {device}: {why}; install onnxruntime-gpu instead of onnxruntime, or use cpu"
