"""Converts results of an application that are not boxes to bytes."""

import json

from mez._arguments import wrong_type


def reply_bytes(result: object) -> bytes:
    """The bytes of a result that is not boxes.

    Raises:
        ArgumentTypeError: JSON cannot represent it.
    """
    if isinstance(result, bytes | bytearray | memoryview):
        return bytes(result)
    try:
        return json.dumps(result, default=_plain, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise wrong_type(
            "result", f"the reply cannot be written as JSON ({error}); send bytes, or plain values"
        ) from error


def _plain(value: object) -> object:
    """Arrays and numbers of NumPy, and other objects with `tolist`, as lists and numbers."""
    convert = getattr(value, "tolist", None)
    if convert is None:
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
    return convert()
