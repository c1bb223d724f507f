"""Events of the program ``godwit`` while it copies, as its event log has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Sequence, Tuple

from . import _decode as decode
from ._decode import Object


@dataclass(frozen=True)
class Event:
    """An event; ``t`` is in seconds since the program started."""

    t: float


@dataclass(frozen=True)
class Start(Event):
    """First of a run."""

    command: str
    endpoints: Sequence[str]
    version: str


@dataclass(frozen=True)
class Plan(Event):
    """What is to be copied is known."""

    files: int
    bytes: int


@dataclass(frozen=True)
class Difference(Event):
    """The ends of a sync differ, and what is done: ``copy``, ``make``, ``set``, ``delete``."""

    action: str
    reason: str
    path: str
    dry_run: bool


@dataclass(frozen=True)
class Setting:
    """Sessions, data channels of each, small files in flight on each."""

    concurrency: int
    parallelism: int
    pipelining: int

    @classmethod
    def from_json(cls, source: Object) -> Setting:
        names = ("concurrency", "parallelism", "pipelining")
        return cls(*(decode.whole(source, name) for name in names))


@dataclass(frozen=True)
class Epoch(Event):
    """A setting was measured."""

    setting: Setting
    seconds: float
    bytes: int
    goodput_bps: float
    channels: int
    limited_by: Optional[str]


@dataclass(frozen=True)
class Decision(Event):
    """A setting was chosen."""

    to: Setting
    reason: str


@dataclass(frozen=True)
class Retry(Event):
    """An attempt failed and is repeated."""

    path: str
    attempt: int
    error: str


@dataclass(frozen=True)
class Begins(Event):
    """A large file starts."""

    path: str
    bytes: Optional[int]


@dataclass(frozen=True)
class File(Event):
    """A file is complete (``verified``, ``done``) or ``failed``."""

    path: str
    #: Bytes moved, repeated ones included.
    bytes: int
    size: Optional[int]
    seconds: float
    checksum: Optional[str]
    state: str
    error: Optional[str]
    #: The kind of the failure: ``not_found``, ``exists``, ``no_space`` ...
    code: Optional[str]


@dataclass(frozen=True)
class Summary(Event):
    """Last of a run."""

    bytes: int
    seconds: float
    goodput_bps: float
    files_done: int
    files_failed: int
    limited_by: Optional[str]
    #: Of a sync: files that were to be copied, that were there already, names that are gone.
    files_differing: Optional[int]
    files_same: Optional[int]
    names_removed: Optional[int]
    exit: int


@dataclass(frozen=True)
class Message(Event):
    """A ``warning``, or a ``note`` about a feature that is missing."""

    kind: str
    text: str


@dataclass(frozen=True)
class Other(Event):
    """An event without a type of its own here; ``content`` is all of it."""

    event: str
    content: Mapping[str, Any] = field(repr=False)


def event_from_line(line: bytes) -> Event:
    """An event of a line of the log."""
    source = decode.as_object(decode.parse(line))
    t, kind = decode.real(source, "t"), decode.text(source, "event")

    def maybe_text(name: str) -> Optional[str]:
        return decode.optional(decode.text, source, name)

    def maybe_whole(name: str) -> Optional[int]:
        return decode.optional(decode.whole, source, name)

    def text(name: str) -> str:
        return decode.text(source, name)

    def whole(name: str) -> int:
        return decode.whole(source, name)

    def real(name: str) -> float:
        return decode.real(source, name)

    if kind == "start":
        endpoints: Tuple[str, ...] = tuple(map(str, decode.listed(source, "endpoints")))
        return Start(t, text("command"), endpoints, text("version"))
    if kind == "plan":
        return Plan(t, whole("files"), whole("bytes"))
    if kind == "difference":
        dry_run = decode.flag(source, "dry_run")
        return Difference(t, text("action"), text("reason"), text("path"), dry_run)
    if kind == "epoch":
        setting = Setting.from_json(decode.inner(source, "setting"))
        rate, channels = real("goodput_bps"), whole("channels")
        limited_by = maybe_text("limited_by")
        return Epoch(t, setting, real("seconds"), whole("bytes"), rate, channels, limited_by)
    if kind == "decision":
        return Decision(t, Setting.from_json(decode.inner(source, "to")), text("reason"))
    if kind == "retry":
        return Retry(t, text("path"), whole("attempt"), text("error"))
    if kind == "begins":
        return Begins(t, text("path"), maybe_whole("bytes"))
    if kind == "file":
        return File(
            t,
            path=text("path"),
            bytes=whole("bytes"),
            size=maybe_whole("size"),
            seconds=real("seconds"),
            checksum=maybe_text("checksum"),
            state=text("state"),
            error=maybe_text("error"),
            code=maybe_text("code"),
        )
    if kind == "summary":
        return Summary(
            t,
            bytes=whole("bytes"),
            seconds=real("seconds"),
            goodput_bps=real("goodput_bps"),
            files_done=whole("files_done"),
            files_failed=whole("files_failed"),
            limited_by=maybe_text("limited_by"),
            files_differing=maybe_whole("files_differing"),
            files_same=maybe_whole("files_same"),
            names_removed=maybe_whole("names_removed"),
            exit=whole("exit"),
        )
    if kind in ("note", "warning"):
        return Message(t, kind, text("text"))
    return Other(t, kind, source)
