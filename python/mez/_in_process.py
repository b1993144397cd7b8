"""An edge broker inside this process, to which publishers and subscriptions connect."""

import os
import weakref
from pathlib import Path
from types import TracebackType
from typing import Self

from mez import _native
from mez.errors import EndedError


class InProcessEdge:
    """An edge broker inside this process: what `mez.edge` returns, without its shortcuts."""

    def __init__(self, native: _native.Edge, folder: Path | None, temporary_keys: bool) -> None:
        self._native = native
        # A temporary site ends with this edge, so the epochs of its cameras need not continue later.
        self._camera_state = folder / "state" if folder and temporary_keys else None
        # Also called when the interpreter ends, so that no folder is left behind.
        self._finalize = weakref.finalize(self, _close, os.getpid(), native, folder)

    @property
    def address(self) -> str:
        """The address for cameras, `HOST:PORT` (UDP): `edge=` of `mez.publisher` in other processes."""
        return _reachable(self._native.link)

    @property
    def grpc_address(self) -> str | None:
        """The address for applications on other hosts, `HOST:PORT` (TCP, TLS): `edge=` of `mez.subscribe`.

        `None` with `grpc=None`.
        """
        return None if self._native.grpc is None else _reachable(self._native.grpc)

    @property
    def web_address(self) -> str | None:
        """The address of the page, health and metrics, `HOST:PORT` (HTTPS). `None` without `web=`."""
        return None if self._native.web is None else _reachable(self._native.web)

    @property
    def socket(self) -> Path:
        """The socket for applications on this host: `edge=f"unix://{edge.socket}"` in other processes."""
        return self._native.socket

    @property
    def keys(self) -> Path:
        """The folder of keys. Use it as `keys=` in other processes."""
        return self._native.keys

    @property
    def closed(self) -> bool:
        """Whether the edge is closed."""
        return not self._finalize.alive

    def _open(self) -> Self:
        """This edge. Raises `EndedError` if it is closed, because a closed edge never answers."""
        if self.closed:
            raise EndedError("the edge is closed; start another with mez.edge()")
        return self

    def close(self) -> None:
        """Stop the edge. A second call has no effect.

        Applications are informed. Cameras keep trying to connect.
        """
        self._finalize()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'closed' if self.closed else self.address}>"


def _reachable(address: str) -> str:
    """An address to dial: loopback, if the broker listens on every address of this host."""
    for everywhere, here in (("0.0.0.0:", "127.0.0.1:"), ("[::]:", "[::1]:")):
        if address.startswith(everywhere):
            return here + address.removeprefix(everywhere)
    return address


def _close(process: int, native: _native.Edge, folder: Path | None) -> None:
    if process != os.getpid():
        # A forked child: the edge belongs to its parent.
        return
    native.close()
    if folder is not None:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)
