"""What a result of an application is sent as, if it is no boxes."""

import json

from mez._arguments import wrong_type


def reply_bytes(result: object) -> bytes:
    """What a result that is no boxes is sent as.

    Raises:
        ArgumentTypeError: JSON cannot say it.
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
    """Arrays and numbers of NumPy, and of whoever follows its example, as lists and numbers."""
    convert = getattr(value, "tolist", None)
    if convert is None:
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
    return convert()
