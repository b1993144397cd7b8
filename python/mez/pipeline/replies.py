"""Sends replies of stages (`Record.reply`) to the cameras of the frames that their records were made of.

Replies are sent through the pipeline's edge, on either bus. Nothing waits for replies: they are lost if the
camera or the edge is away.
"""

import contextlib
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mez import _native, _subscribe
from mez.errors import Error
from mez.pipeline.record import Record, Reply

CONNECT_S: Final = 1.0
"""How long to try to connect to the edge before a reply is given up, in seconds."""

PAUSE_S: Final = 10.0
"""The pause before the next try to connect, in seconds."""

FLUSH_S: Final = 1.0
"""How long the end waits for replies that are on their way, in seconds."""

_log = logging.getLogger("mez")


class Replies:
    """A worker's way back to the cameras. It connects with the first reply.

    Args:
        edge: The edges, as in `mez.subscribe`; empty: its defaults.
        keys: The folder of keys; `None`: its default.
        application: The application's name, which cameras get with a reply.
    """

    def __init__(self, edge: Sequence[str], keys: Path | None, application: str) -> None:
        self._edge = list(edge) or None
        self._keys = keys
        self._application = application
        self._client: _native.Client | None = None
        self._dial_at_s = 0.0
        self._told = ""
        self.lost = 0

    def send(self, record: Record, replies: Sequence[Reply]) -> None:
        """Send a stage's replies to the frame of a record. Failed ones are counted, and logged."""
        for reply in replies:
            try:
                self._send(record, reply)
            except Error as error:
                self._lose(str(error))

    def _send(self, record: Record, reply: Reply) -> None:
        if self._client is None:
            if time.monotonic() < self._dial_at_s:
                self.lost += 1
                return
            self._dial_at_s = time.monotonic() + PAUSE_S
            self._client = _subscribe.connect(
                self._edge, keys=self._keys, application=self._application, connect_timeout=CONNECT_S
            )
        frame = record.frame
        if reply.payload is not None:
            self._client.reply(record.camera, frame.epoch, frame.sequence, reply.payload)
        else:
            assert record.published_size is not None, "Record.reply has asked for it"
            self._client.reply_detections(
                record.camera, frame.epoch, frame.sequence, record.published_size, (reply.size, reply.parts)
            )

    def _lose(self, why: str) -> None:
        self.lost += 1
        if why != self._told:
            self._told = why
            _log.warning("a reply was not sent: %s", why)

    def close(self) -> None:
        """Wait for replies that are on their way, then close the connection."""
        if self._client is not None:
            with contextlib.suppress(Error):
                self._client.flush_replies(FLUSH_S)
            self._client = None
