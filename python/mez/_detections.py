"""What an application found in a frame: boxes, and what is known of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, overload

from mez._arguments import invalid, wrong_type

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

_Mask: TypeAlias = tuple[int, int, list[int]]
_Point: TypeAlias = tuple[float, float, float | None]
Parts: TypeAlias = tuple[list[float], float | None, int | None, str, int | None, _Mask | None, list[_Point]]
"""A detection for the native module."""

_OPAQUE: Final = "to send your own value unchanged, send json.dumps(value).encode()"
_NO_CLASS: Final = -1
_INTEGER_MAX: Final = {"class_ids": (1 << 31) - 1, "tracker_ids": (1 << 63) - 1}


class Detections:
    """The objects that an application found in a picture: a box for each object, and optional values.

    Coordinates are in pixels from the upper left corner of the picture, x to the right and y down. The first
    pixel is from 0 to 1, so a box around the whole picture is `(0, 0, width, height)`.

    `len(detections)` is the number of objects. Every optional array has one entry for each box; `None` means
    that it is not known for any box.

    Attributes:
        xyxy: Left, top, right and bottom of each box: float32, shape (N, 4). A box may reach beyond the
            picture.
        scores: The detector's confidence: float32, shape (N,). NaN if it is unknown.
        class_ids: The detector's class numbers: int64, shape (N,). -1 if it is unknown.
        class_names: The detector's class names. An empty text if it is unknown.
        tracker_ids: The numbers that a tracker gave: int64, shape (N,). -1 if there is none.
        masks: For each box, the pixels of the object: bool, shape (height, width), or `None`. Masks in a
            reply have the size of the published frame, and are decoded when you read them.
        key_points: For each box, points of the object, such as wrists: float32, shape (K, 3): x, y and the
            confidence, which is NaN if it is unknown.
        size: Width and height of the picture that the coordinates are in. `None`: the image of the frame that
            is replied to.
    """

    __slots__ = ("class_ids", "class_names", "key_points", "masks", "scores", "size", "tracker_ids", "xyxy")

    xyxy: "NDArray[np.float32]"
    scores: "NDArray[np.float32] | None"
    class_ids: "NDArray[np.int64] | None"
    class_names: Sequence[str] | None
    tracker_ids: "NDArray[np.int64] | None"
    masks: "Sequence[NDArray[np.bool_] | None] | None"
    key_points: "Sequence[NDArray[np.float32]] | None"
    size: tuple[int, int] | None

    def __init__(
        self,
        xyxy: "ArrayLike",
        *,
        scores: "ArrayLike | None" = None,
        class_ids: "ArrayLike | None" = None,
        class_names: Sequence[str] | None = None,
        tracker_ids: "ArrayLike | None" = None,
        masks: "NDArray[np.bool_] | Sequence[NDArray[np.bool_] | None] | None" = None,
        key_points: "ArrayLike | None" = None,
        size: tuple[int, int] | None = None,
    ) -> None:
        """Describe the objects that were found.

        Args:
            xyxy: Left, top, right and bottom of each box, in pixels.
            scores: The detector's confidence, one for each box.
            class_ids: The detector's class numbers, one for each box.
            class_names: The detector's class names, one for each box, at most 128 bytes each.
            tracker_ids: The numbers that a tracker gave, one for each box.
            masks: For each box, the pixels of the object: shape (height, width). The mask is stretched over
                the whole picture, so it can have any size.
            key_points: For each box, points of shape (K, 2) or (K, 3): x, y and optionally the confidence.
            size: Width and height of the picture that the coordinates are in. Default: those of
                `Frame.image`.

        Raises:
            ArgumentError: Shapes do not fit, a number is not finite, or a box ends before it begins; `field`
                names the argument.
        """
        import numpy as np

        self.xyxy = _boxes(xyxy)
        self.scores = None if scores is None else _column("scores", scores, len(self.xyxy)).astype(np.float32)
        self.class_ids = _integers("class_ids", class_ids, len(self.xyxy))
        self.tracker_ids = _integers("tracker_ids", tracker_ids, len(self.xyxy))
        self.class_names = self._each("class_names", class_names)
        self.masks = self._each("masks", masks)
        points = self._each("key_points", key_points)
        self.key_points = None if points is None else [_points(given) for given in points]
        self.size = size

    def _each(self, field: str, given: Any) -> Any:  # noqa: ANN401, as long as there are boxes
        if given is None or len(given) == len(self.xyxy):
            return given
        raise invalid(
            field, f"{field} has {len(given)} entries for {len(self.xyxy)} boxes; give one for each"
        )

    def __len__(self) -> int:
        return len(self.xyxy)

    def __repr__(self) -> str:
        known = [
            name
            for name in self.__slots__
            if name not in ("xyxy", "size") and getattr(self, name) is not None
        ]
        size = "" if self.size is None else f" in {self.size[0]}x{self.size[1]}"
        return f"<Detections {len(self)}{size}{' with ' if known else ''}{', '.join(known)}>"

    def __reduce__(self) -> tuple[object, ...]:
        # Masks stay encoded: they are decoded only when they are read.
        return _restored, (self.size, self._parts())

    def _parts(self) -> list[Parts]:
        """The detections, for the native module."""
        count = len(self)
        scores = [None] * count if self.scores is None else [_known(score) for score in self.scores.tolist()]
        class_ids = [None] * count if self.class_ids is None else self.class_ids.tolist()
        tracker_ids = [None] * count if self.tracker_ids is None else self.tracker_ids.tolist()
        masks = [None] * count if self.masks is None else _runs_of(self.masks)
        names = [""] * count if self.class_names is None else [str(name) for name in self.class_names]
        points: list[list[_Point]] = [
            [(x, y, _known(score)) for x, y, score in given.tolist()] for given in self.key_points or ()
        ] or [[] for _ in range(count)]
        columns = zip(self.xyxy.tolist(), scores, class_ids, names, tracker_ids, masks, points, strict=True)
        return [
            (box, score, _numbered(class_id), name, _numbered(tracker_id), mask, own)
            for box, score, class_id, name, tracker_id, mask, own in columns
        ]

    def _plain(self) -> list[dict[str, object]]:
        """The detections as plain values for JSON, without masks."""
        plain: list[dict[str, object]] = []
        for box, score, class_id, name, tracker_id, _mask, points in self._parts():
            known = {
                "score": score,
                "class_id": class_id,
                "class_name": name or None,
                "tracker_id": tracker_id,
                "key_points": [list(point) for point in points] or None,
            }
            plain.append({"xyxy": box} | {key: value for key, value in known.items() if value is not None})
        return plain


def received(size: tuple[int, int], parts: Sequence[Parts]) -> Detections:
    """Detections from the parts that the native module returns."""
    import numpy as np

    boxes, scores, class_ids, names, tracker_ids, masks, points = (
        zip(*parts, strict=True) if parts else [()] * 7
    )

    def known(values: Sequence[Any], missing: float) -> list[Any] | None:
        if all(value is None for value in values):
            return None
        return [missing if value is None else value for value in values]

    found = Detections(
        np.array(boxes, np.float32).reshape(-1, 4),
        scores=known(scores, float("nan")),
        class_ids=known(class_ids, _NO_CLASS),
        class_names=list(names) if any(names) else None,
        tracker_ids=known(tracker_ids, _NO_CLASS),
        key_points=_ragged(points) if any(points) else None,
        size=size,
    )
    if any(mask is not None for mask in masks):
        found.masks = _Masks(masks, size)
    return found


def _restored(size: tuple[int, int] | None, parts: Sequence[Parts]) -> Detections:
    """Restore pickled detections."""
    found = received(size or (1, 1), parts)
    found.size = size
    if isinstance(found.masks, _Masks):
        found.masks = _Masks(found.masks.runs, size)
    return found


def of(result: object) -> Detections | None:
    """The detections in a result. `None` if the result is opaque.

    Raises:
        ArgumentError: The result has boxes that are not valid.
    """
    if isinstance(result, Detections):
        return result
    if result is None or isinstance(result, bytes | bytearray | memoryview | str | int | float | Mapping):
        return None
    if hasattr(result, "xyxy") and hasattr(result, "confidence"):
        return _of_supervision(result)
    if isinstance(result, list | tuple):
        return _of_list(result)
    return _of_array(result) if hasattr(result, "shape") else None


def _of_supervision(given: Any) -> Detections:  # noqa: ANN401, a package that need not be there
    data = getattr(given, "data", None) or {}
    return Detections(
        given.xyxy,
        scores=given.confidence,
        class_ids=getattr(given, "class_id", None),
        class_names=data.get("class_name"),
        tracker_ids=getattr(given, "tracker_id", None),
        masks=getattr(given, "mask", None),
    )


def _of_list(result: Sequence[Any]) -> Detections | None:
    if not result:
        return Detections([])
    if all(isinstance(item, Mapping) and _BOX.keys() & item.keys() for item in result):
        return _of_mappings(result)
    if all(hasattr(item, name) for item in result for name in ("x", "y", "width", "height", "score")):
        boxes = [(box.x, box.y, box.x + box.width, box.y + box.height) for box in result]
        labels = [str(getattr(box, "label", "")) for box in result]
        return Detections(
            boxes, scores=[box.score for box in result], class_names=labels if any(labels) else None
        )
    rows = [item.tolist() if hasattr(item, "tolist") else item for item in result]
    widths = {len(row) if isinstance(row, list | tuple) else 0 for row in rows}
    if len(widths) != 1 or not widths <= {4, 5, 6}:
        return None
    names = None
    if widths <= {5, 6} and all(isinstance(row[-1], str) for row in rows):
        names = [row[-1] for row in rows]
        rows = [row[:-1] for row in rows]
    if not all(map(_is_number, (number for row in rows for number in row))):
        return None
    found = _of_columns(rows)
    found.class_names = names
    return found


def _of_array(result: Any) -> Detections | None:  # noqa: ANN401, an array of whatever package
    import numpy as np

    # Detach tensors that need a gradient, and copy those on an accelerator to main memory.
    for way in ("detach", "cpu"):
        result = getattr(result, way, lambda given=result: given)()
    array = np.asarray(result)
    if array.dtype.kind not in "fiu" or array.ndim not in (1, 2):
        return None
    if array.size == 0:
        return Detections([])
    return _of_columns(array) if array.ndim == 2 and array.shape[1] in (4, 5, 6) else None


def _of_columns(rows: Any) -> Detections:  # noqa: ANN401, an array or what makes one
    import numpy as np

    columns = np.asarray(rows, np.float64)
    return Detections(
        columns[:, :4],
        scores=columns[:, 4] if columns.shape[1] > 4 else None,
        class_ids=columns[:, 5] if columns.shape[1] > 5 else None,
    )


_BOX: Final[Mapping[str, Sequence[str]]] = {
    "xyxy": ("xyxy",),
    "x1": ("x1", "y1", "x2", "y2"),
    "width": ("x", "y", "width", "height"),
}
"""The key that marks a mapping as a box, and the keys that the mapping then needs."""

_KNOWN: Final = {
    "score": "scores",
    "confidence": "scores",
    "class_id": "class_ids",
    "class_name": "class_names",
    "label": "class_names",
    "tracker_id": "tracker_ids",
    "key_points": "key_points",
    "mask": "masks",
}


def _of_mappings(result: Sequence[Mapping[str, Any]]) -> Detections:
    boxes = []
    columns: dict[str, Any] = {}
    for place, item in enumerate(result):
        form = next(_BOX[key] for key in _BOX if key in item)
        unknown = item.keys() - {*form} - _KNOWN.keys()
        if unknown or not item.keys() >= {*form}:
            wrong = (
                f"has unknown keys {', '.join(sorted(map(repr, unknown)))}" if unknown else "is incomplete"
            )
            raise invalid(
                "result",
                f"detection {place} {wrong}; a box has {', '.join(map(repr, form))}, and optionally "
                f"{', '.join(map(repr, _KNOWN))}; {_OPAQUE}",
            )
        values = [item[key] for key in form]
        if form == _BOX["width"]:
            x, y, width, height = values
            values = [x, y, x + width, y + height]
        boxes.append(values[0] if len(values) == 1 else values)
        for key in item.keys() & _KNOWN.keys():
            columns.setdefault(_KNOWN[key], [None] * len(result))[place] = item[key]
    for name, missing in (
        ("scores", float("nan")),
        ("class_ids", _NO_CLASS),
        ("tracker_ids", _NO_CLASS),
        ("class_names", ""),
        ("key_points", ()),
    ):
        if name in columns:
            columns[name] = [missing if value is None else value for value in columns[name]]
    return Detections(boxes, **columns)


def _is_number(value: object) -> bool:
    return not isinstance(value, bool | str) and hasattr(value, "__float__") and not hasattr(value, "__len__")


def _boxes(given: "ArrayLike") -> "NDArray[np.float32]":
    import numpy as np

    try:
        boxes = np.asarray(given, np.float32)
    except (TypeError, ValueError) as error:
        raise wrong_type("xyxy", f"xyxy is not an array of numbers ({error}); {_OPAQUE}") from None
    if boxes.size == 0:
        return np.zeros((0, 4), np.float32)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise invalid("xyxy", f"xyxy has the shape {boxes.shape}; give (N, 4): left, top, right, bottom")
    wrong = ~(np.isfinite(boxes).all(axis=1) & (boxes[:, :2] <= boxes[:, 2:]).all(axis=1))
    if wrong.any():
        place = int(np.argmax(wrong))
        raise invalid(
            "xyxy",
            f"box {place} is {boxes[place].tolist()}; give left, top, right and bottom, left <= right "
            "and top <= bottom (or mappings with x, y, width and height); " + _OPAQUE,
        )
    return boxes


def _column(field: str, given: "ArrayLike", count: int) -> "NDArray[np.float64]":
    import numpy as np

    column = np.asarray(given, np.float64)
    if column.shape != (count,):
        raise invalid(field, f"{field} has the shape {column.shape}; give one for each of {count} boxes")
    if np.isinf(column).any():
        raise invalid(field, f"{field} has infinite values; give finite ones, or NaN for unknown")
    return column


def _integers(field: str, given: "ArrayLike | None", count: int) -> "NDArray[np.int64] | None":
    import numpy as np

    if given is None:
        return None
    array = np.asarray(given)
    if array.dtype.kind not in "iu":
        array = _column(field, given, count)
        if (array != np.round(array)).any():
            raise invalid(field, f"{field} has values that are not whole; give whole numbers")
    if array.shape != (count,):
        raise invalid(field, f"{field} has the shape {array.shape}; give one for each of {count} boxes")
    if (np.abs(array.astype(np.float64)) > _INTEGER_MAX[field]).any():
        raise invalid(field, f"{field} has values beyond {_INTEGER_MAX[field]}; give smaller ones")
    return array.astype(np.int64)


def _points(given: "ArrayLike") -> "NDArray[np.float32]":
    import numpy as np

    points = np.asarray(given, np.float32)
    if points.size == 0:
        return np.zeros((0, 3), np.float32)
    if points.ndim == 2 and points.shape[1] == 2:
        points = np.column_stack([points, np.full(len(points), np.nan, np.float32)])
    if points.ndim != 2 or points.shape[1] != 3:
        raise invalid(
            "key_points", f"key_points has the shape {points.shape}; give (K, 2) or (K, 3) for each box"
        )
    return points


def _ragged(points: Iterable[Sequence[_Point]]) -> Any:  # noqa: ANN401, boxes differ in their points
    return [[(x, y, float("nan") if score is None else score) for x, y, score in own] for own in points]


def _known(score: float) -> float | None:
    return None if score != score else score


def _numbered(number: int | None) -> int | None:
    return None if number == _NO_CLASS else number


def _runs_of(masks: Any) -> list[_Mask | None]:  # noqa: ANN401, an array or a sequence of arrays
    if isinstance(masks, _Masks):
        return masks.runs
    return [None if mask is None else _runs(mask) for mask in masks]


def _runs(given: "NDArray[np.bool_]") -> _Mask:
    """The runs of a mask, as `mez.proto` has them."""
    import numpy as np

    mask = np.asarray(given).astype(bool)
    if mask.ndim != 2 or mask.size == 0:
        raise invalid("masks", f"a mask has the shape {mask.shape}; give (height, width)")
    pixels = mask.ravel(order="F")
    bounds = np.flatnonzero(np.diff(pixels)) + 1
    runs = np.diff(np.concatenate([[0], bounds, [pixels.size]])).tolist()
    return mask.shape[1], mask.shape[0], [0, *runs] if pixels[0] else runs


class _Masks(Sequence["NDArray[np.bool_] | None"]):
    """Masks that are decoded when they are read: all of them together could fill the memory."""

    def __init__(self, runs: Sequence[_Mask | None], size: tuple[int, int] | None) -> None:
        self.runs = list(runs)
        self._size = size

    def __len__(self) -> int:
        return len(self.runs)

    @overload
    def __getitem__(self, place: int) -> "NDArray[np.bool_] | None": ...
    @overload
    def __getitem__(self, place: slice) -> "_Masks": ...
    def __getitem__(self, place: int | slice) -> "NDArray[np.bool_] | _Masks | None":
        import numpy as np

        if isinstance(place, slice):
            return _Masks(self.runs[place], self._size)
        given = self.runs[place]
        if given is None:
            return None
        width, height, runs = given
        inside = np.arange(len(runs)) % 2 == 1
        raster = np.repeat(inside, runs).reshape((height, width), order="F")
        if self._size is None:
            return raster
        rows = np.arange(self._size[1]) * height // self._size[1]
        columns = np.arange(self._size[0]) * width // self._size[0]
        return raster[rows[:, None], columns]
