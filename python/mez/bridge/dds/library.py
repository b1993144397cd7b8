"""The C library of Cyclone DDS: the functions that the bridge calls, and their structures.

The package `cyclonedds` contains the library. Its own Python layer is not used, because it copies samples
into Python objects: 45 ms for a megabyte. The functions ending in `cdr` take and return encoded samples.

The structures here are those of version 11. `load` refuses every other version.
"""

import ctypes
import importlib.metadata
import importlib.util
from collections.abc import Mapping
from ctypes import POINTER, c_bool, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Final

from mez.bridge.dds.errors import DdsError
from mez.errors import MissingPackageError

PACKAGE: Final = "cyclonedds"
VERSION: Final = 11

TIMEOUT: Final = -10
"""The error code of a timeout."""

DATA: Final = 2
"""A sample with all its fields, and not only a key."""

DESCRIBED: Final = 1 << 6
"""A flag of a type: its type objects are offered."""

ANY_STATE: Final = 0x7F
"""Samples in any state: read or not, of new instances or not, with or without writers."""


class Iovec(ctypes.Structure):
    """A part of memory."""

    _fields_ = (("base", c_void_p), ("size", c_size_t))


class Bytes(ctypes.Structure):
    """A part of memory of at most 4 GiB."""

    _fields_ = (("data", c_void_p), ("size", c_uint32))


class Key(ctypes.Structure):
    """A key field: its place in the program, and its index."""

    _fields_ = (("name", c_char_p), ("word", c_uint32), ("index", c_uint32))


class Descriptor(ctypes.Structure):
    """A type: its name, and the program that checks samples. For types of ROS 2, only names are compared."""

    _fields_ = (
        ("size", c_uint32),
        ("align", c_uint32),
        ("flags", c_uint32),
        ("key_count", c_uint32),
        ("name", c_char_p),
        ("keys", POINTER(Key)),
        ("count", c_uint32),
        ("words", POINTER(c_uint32)),
        ("about", c_char_p),
        ("type_information", Bytes),
        ("type_mapping", Bytes),
        ("representations", c_uint32),
    )


class SampleInfo(ctypes.Structure):
    """Information about a sample."""

    _fields_ = (
        ("sample_state", c_uint32),
        ("view_state", c_uint32),
        ("instance_state", c_uint32),
        ("is_valid", c_bool),
        ("written_ns", c_int64),
        ("instance", c_uint64),
        ("writer", c_uint64),
        ("disposed_count", c_uint32),
        ("no_writers_count", c_uint32),
        ("sample_rank", c_uint32),
        ("generation_rank", c_uint32),
        ("absolute_generation_rank", c_uint32),
    )


class Matched(ctypes.Structure):
    """Number of readers of a writer, or of writers of a reader."""

    _fields_ = (
        ("total", c_uint32),
        ("total_change", c_int32),
        ("current", c_uint32),
        ("current_change", c_int32),
        ("last", c_uint64),
    )


class Counted(ctypes.Structure):
    """A count that only grows, and its growth since the last query."""

    _fields_ = (("total", c_uint32), ("change", c_int32))


class Rejected(ctypes.Structure):
    """Number of samples that a reader had no room for, and why there was none for the last one."""

    _fields_ = (("total", c_uint32), ("change", c_int32), ("reason", c_uint32), ("instance", c_uint64))


class Incompatible(ctypes.Structure):
    """Number of readers or writers that did not fit, and the setting that did not fit for the last one."""

    _fields_ = (("total", c_uint32), ("change", c_int32), ("policy", c_uint32))


_ENTITY: Final = c_int32

# For each function: the types of its result and its arguments. Pointers that only the library follows are
# `c_void_p`.
_FUNCTIONS: Final[Mapping[str, tuple[Any, tuple[Any, ...]]]] = {
    "dds_create_domain": (_ENTITY, (c_uint32, c_char_p)),
    "dds_create_participant": (_ENTITY, (c_uint32, c_void_p, c_void_p)),
    "dds_create_topic": (_ENTITY, (_ENTITY, POINTER(Descriptor), c_char_p, c_void_p, c_void_p)),
    "dds_create_publisher": (_ENTITY, (_ENTITY, c_void_p, c_void_p)),
    "dds_create_subscriber": (_ENTITY, (_ENTITY, c_void_p, c_void_p)),
    "dds_create_writer": (_ENTITY, (_ENTITY, _ENTITY, c_void_p, c_void_p)),
    "dds_create_reader": (_ENTITY, (_ENTITY, _ENTITY, c_void_p, c_void_p)),
    "dds_read": (c_int32, (_ENTITY, POINTER(c_void_p), POINTER(SampleInfo), c_size_t, c_uint32)),
    "dds_return_loan": (c_int32, (_ENTITY, POINTER(c_void_p), c_int32)),
    "dds_create_waitset": (_ENTITY, (_ENTITY,)),
    "dds_create_readcondition": (_ENTITY, (_ENTITY, c_uint32)),
    "dds_waitset_attach": (c_int32, (_ENTITY, _ENTITY, c_void_p)),
    "dds_waitset_wait": (c_int32, (_ENTITY, c_void_p, c_size_t, c_int64)),
    "dds_delete": (c_int32, (_ENTITY,)),
    "dds_strretcode": (c_char_p, (c_int32,)),
    "dds_create_qos": (c_void_p, ()),
    "dds_delete_qos": (None, (c_void_p,)),
    "dds_qset_reliability": (None, (c_void_p, c_int32, c_int64)),
    "dds_qset_history": (None, (c_void_p, c_int32, c_int32)),
    "dds_qset_durability": (None, (c_void_p, c_int32)),
    "dds_qset_durability_service": (None, (c_void_p, c_int64, c_int32, c_int32, c_int32, c_int32, c_int32)),
    "dds_qset_lifespan": (None, (c_void_p, c_int64)),
    "dds_qset_deadline": (None, (c_void_p, c_int64)),
    "dds_qset_resource_limits": (None, (c_void_p, c_int32, c_int32, c_int32)),
    "dds_qset_partition1": (None, (c_void_p, c_char_p)),
    "dds_qset_userdata": (None, (c_void_p, c_char_p, c_size_t)),
    "dds_qset_ignorelocal": (None, (c_void_p, c_int32)),
    "dds_qset_data_representation": (None, (c_void_p, c_uint32, c_void_p)),
    "dds_get_entity_sertype": (c_int32, (_ENTITY, POINTER(c_void_p))),
    "ddsi_serdata_from_ser_iov": (c_void_p, (c_void_p, c_int32, c_size_t, POINTER(Iovec), c_size_t)),
    "ddsi_serdata_size": (c_uint32, (c_void_p,)),
    "ddsi_serdata_to_ser_ref": (c_void_p, (c_void_p, c_size_t, c_size_t, POINTER(Iovec))),
    "ddsi_serdata_to_ser_unref": (None, (c_void_p, POINTER(Iovec))),
    "ddsi_serdata_unref": (None, (c_void_p,)),
    "dds_writecdr": (c_int32, (_ENTITY, c_void_p)),
    "dds_takecdr": (c_int32, (_ENTITY, POINTER(c_void_p), c_uint32, POINTER(SampleInfo), c_uint32)),
    "dds_get_publication_matched_status": (c_int32, (_ENTITY, POINTER(Matched))),
    "dds_get_subscription_matched_status": (c_int32, (_ENTITY, POINTER(Matched))),
    "dds_get_sample_lost_status": (c_int32, (_ENTITY, POINTER(Counted))),
    "dds_get_sample_rejected_status": (c_int32, (_ENTITY, POINTER(Rejected))),
    "dds_get_offered_incompatible_qos_status": (c_int32, (_ENTITY, POINTER(Incompatible))),
    "dds_get_requested_incompatible_qos_status": (c_int32, (_ENTITY, POINTER(Incompatible))),
}


class Library:
    """The library's functions, as attributes. They run without Python's global lock.

    Args:
        path: The library's file.

    Raises:
        DdsError: It is not a library of Cyclone DDS, or a function is missing.
    """

    def __init__(self, path: Path) -> None:
        try:
            library = ctypes.CDLL(str(path))
            for name, (result, arguments) in _FUNCTIONS.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
        except (OSError, AttributeError) as error:
            raise DdsError(
                f"{path} is not a library of Cyclone DDS {VERSION}: {error}; reinstall the package {PACKAGE}"
            ) from error
        self._library = library

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401, a function of C
        return getattr(self._library, name)

    def done(self, what: str, code: int) -> int:
        """The result of a function, if it is not an error.

        Raises:
            DdsError: The result is an error. The message begins with `what`.
        """
        if code < 0:
            raise DdsError(f"{what}: {self._library.dds_strretcode(-code).decode()}")
        return code


def load() -> Library:
    """Load the library of the installed package.

    Raises:
        MissingPackageError: The package is not installed, or of another version.
        DdsError: Its library does not fit.
    """
    return Library(path())


def path() -> Path:
    """The library's file in the installed package.

    Raises:
        MissingPackageError: The package is not installed, of another version, or has no library.
    """
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise MissingPackageError(f"a bridge to DDS needs the package {PACKAGE}; run: pip install 'mez[dds]'")
    version = importlib.metadata.version(PACKAGE)
    if version.split(".")[0] != str(VERSION):
        raise MissingPackageError(
            f"a bridge to DDS needs {PACKAGE} {VERSION}, but {version} is installed; run: pip install "
            "'mez[dds]'"
        )
    place = Path(found.origin).parent
    # In a wheel for Linux, the library is beside the package.
    for folder in (place.with_name(f"{PACKAGE}.libs"), place / ".libs"):
        for file in sorted(folder.glob("libddsc*.so*")):
            return file
    raise MissingPackageError(
        f"the package {PACKAGE} in {place} has no library libddsc; install it from a wheel for Linux"
    )
