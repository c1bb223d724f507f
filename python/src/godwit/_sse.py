"""Server-sent events (WHATWG HTML, section 9.2), from bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, List, Optional

from . import _decode as decode
from .errors import BadAnswer
from .model import JobEvent, event_from_json

#: Most bytes of an event.
EVENT_BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class Message:
    """An event as it was sent."""

    data: str
    #: ``None``: this event has none.
    id: Optional[str]

    def event(self) -> JobEvent:
        """What it means."""
        return event_from_json(decode.parse(self.data.encode()), self.id)


class Parser:
    """Takes the bytes of a stream as they come, gives whole events."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: List[str] = []
        self._id: Optional[str] = None
        self._bytes = 0
        self._is_after_cr = False

    def feed(self, part: bytes) -> Iterator[Message]:
        """Events that end in this part. What is left at the end of a stream is no event."""
        if self._is_after_cr and part[:1] == b"\n":
            part = part[1:]
        if part:
            self._is_after_cr = part.endswith(b"\r")
        lines = (self._rest + part).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self._count(len(line))
            if not line:
                message = self._end()
                if message is not None:
                    yield message
            else:
                self._take(line.decode("utf-8", "replace"))
        if len(self._rest) > EVENT_BYTES_MAX:
            self._count(len(self._rest))

    def _count(self, length: int) -> None:
        self._bytes += length
        if self._bytes > EVENT_BYTES_MAX:
            raise BadAnswer(f"an event of more than {EVENT_BYTES_MAX} bytes")

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "data":
            self._data.append(value)
        elif name == "id" and value.isascii() and value.isdigit() and len(value) <= 20:
            self._id = value

    def _end(self) -> Optional[Message]:
        message = Message("\n".join(self._data), self._id) if self._data else None
        self._data, self._id, self._bytes = [], None, 0
        return message
