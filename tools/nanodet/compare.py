#!/usr/bin/env python3
"""Compares the converted NanoDet with its source in TensorFlow.js, on a picture.

In the folder of convert.py, with Node 20: `npm install @tensorflow/tfjs@4`, then

    NODE_PATH=node_modules .venv/bin/python tools/nanodet/compare.py package/models nanodet-416.onnx PICTURE
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import cv2
import numpy as np
import onnxruntime

from mez.apps.nanodet import fitted

ERROR_MAX: Final = 1e-4
"""The largest allowed difference of a number: a score from 0 to 1, or a logarithm up to about 12."""


def main() -> int:
    """Compare, and return the status: 0 if both agree."""
    parser = argparse.ArgumentParser(description="Compare NanoDet in ONNX with TensorFlow.js.")
    parser.add_argument("models", type=Path, help="the folder with nanodet.json and nanodet.bin")
    parser.add_argument("onnx", type=Path, help="the converted file")
    parser.add_argument("picture", type=Path, help="any picture")
    options = parser.parse_args()
    image = cv2.imread(str(options.picture))
    if image is None:
        sys.exit(f"{options.picture} is not a picture")
    picture = fitted(np.asarray(image, np.uint8))[0]
    session = onnxruntime.InferenceSession(str(options.onnx), providers=["CPUExecutionProvider"])
    found = np.concatenate([of.ravel() for of in session.run(None, {"input_1": picture})])
    with tempfile.TemporaryDirectory() as folder:
        given, out = Path(folder) / "picture", Path(folder) / "out"
        picture.tofile(given)
        script = Path(__file__).with_name("reference.js")
        subprocess.run(["node", str(script), str(options.models), str(given), str(out)], check=True)
        wanted = np.fromfile(out, np.float32)
    error = float(np.abs(found - wanted).max())
    print(f"{wanted.size} numbers up to {np.abs(wanted).max():.3g}: they differ by at most {error:.2g}")
    return 0 if error <= ERROR_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
