"""Jobs, files, endpoints and events as plain values, as the service's API has them.

Fields of answers that this version does not know are skipped, so that it reads a newer service.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from typing import (
    Any,
    Callable,
    Dict,
    Generic,
    List,
    Mapping,
    Optional,
    Sequence,
    TypeVar,
    Union,
)

from . import _decode as decode
from ._decode import Object

T = TypeVar("T")


class Class(str, enum.Enum):
    """What a job may take from others."""

    URGENT = "urgent"
    NORMAL = "normal"
    SCAVENGER = "scavenger"


class Verify(str, enum.Enum):
    """What is compared after the bytes arrived."""

    SIZE = "size"
    CHECKSUM = "checksum"


class Overwrite(str, enum.Enum):
    """What becomes of files that exist at the destination."""

    NEVER = "never"
    DIFFERENT = "different"
    ALWAYS = "always"


class JobState(str, enum.Enum):
    """Where a job is."""

    SUBMITTING = "submitting"
    QUEUED = "queued"
    ACTIVE = "active"
    PAUSED = "paused"
    FINISHED = "finished"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def is_final(self) -> bool:
        """It never changes again, but by a retry of failed files."""
        return self in (
            JobState.FINISHED,
            JobState.PARTIAL,
            JobState.FAILED,
            JobState.CANCELED,
        )


class FileState(str, enum.Enum):
    """Where a file is."""

    QUEUED = "queued"
    ACTIVE = "active"
    FINISHED = "finished"
    SKIPPED = "skipped"
    FAILED = "failed"
    CANCELED = "canceled"
    #: Its turn has not come, by the order of its job.
    UNUSED = "unused"


class FileOrder(str, enum.Enum):
    """Whether files of a job wait for each other."""

    ANY = "any"
    #: Ways to one file: each starts when the one before has failed.
    ALTERNATIVES = "alternatives"
    #: Each goes on from the copy that the one before has made.
    HOPS = "hops"


@dataclass(frozen=True)
class Copy:
    """One copy of a submission: a file, or a tree with ``recursive``."""

    source: str
    #: URL of the copy, not of the directory that it goes to.
    destination: str
    recursive: bool = False
    #: Bytes, where known; a source of another size is an error.
    bytes: Optional[int] = None
    #: ``algorithm:value``; both ends must agree with it.
    checksum: Optional[str] = None
    #: Returned by the service, which does not read it.
    metadata: Any = None

    def to_json(self) -> Dict[str, Any]:
        """As the API has it; what is not set is left out."""
        return _set_fields(self)


@dataclass(frozen=True)
class JobOptions:
    """How a job is done. The defaults are the service's."""

    #: Shown in lists.
    name: Optional[str] = None
    #: 1 (last) to 5 (first) among the jobs of one share.
    priority: int = 3
    job_class: Class = Class.NORMAL
    #: Path of the share that pays, as ``physics/alice``; ``None``: the user's own.
    share: Optional[str] = None
    verify: Verify = Verify.SIZE
    overwrite: Overwrite = Overwrite.NEVER
    order: FileOrder = FileOrder.ANY
    #: Attempts for each file that fails for a reason that may pass, 1 to 100.
    attempts: int = 5
    #: When it must be done.
    deadline: Optional[datetime] = None
    #: Ids of jobs that must be done first.
    after: Sequence[str] = ()
    #: Agents must have all of these labels.
    labels: Sequence[str] = ()
    #: Copies have the times of the last change of their sources.
    preserve_times: bool = False
    #: Starts paused.
    paused: bool = False
    #: It is checked, and not kept.
    dry_run: bool = False
    #: URLs that are sent a signed report when the job has ended.
    webhooks: Sequence[str] = ()
    #: Addresses that are sent a message when the job has ended.
    mails: Sequence[str] = ()
    #: The user's own.
    metadata: Any = None

    def to_json(self) -> Dict[str, Any]:
        """As the API has it; what is not set is left out."""
        options = _set_fields(self)
        if "job_class" in options:
            options["class"] = options.pop("job_class")
        notify: List[Dict[str, Any]] = []
        notify += ({"webhook": {"url": url}} for url in options.pop("webhooks", ()))
        notify += ({"mail": {"address": address}} for address in options.pop("mails", ()))
        if notify:
            options["notify"] = notify
        return options


def _set_fields(value: Union[Copy, JobOptions]) -> Dict[str, Any]:
    found: Dict[str, Any] = {}
    for item in fields(value):
        content = getattr(value, item.name)
        if content == item.default and item.name not in ("source", "destination"):
            continue
        if isinstance(content, enum.Enum):
            content = content.value
        elif isinstance(content, datetime):
            if content.tzinfo is None:
                raise ValueError(f"{item.name}: a time without a zone")
            content = content.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
        elif isinstance(content, (list, tuple)):
            content = list(content)
        found[item.name] = content
    return found


@dataclass(frozen=True)
class Why:
    """Why a job waits or is slow."""

    #: Stable, for programs.
    code: str
    #: One line for people.
    text: str

    @classmethod
    def from_json(cls, value: Any) -> Why:
        source = decode.as_object(value)
        return cls(code=decode.text(source, "code"), text=decode.text(source, "text"))


@dataclass(frozen=True)
class FileCounts:
    """Files of a job by state."""

    total: int
    finished: int
    skipped: int
    failed: int
    canceled: int
    #: Their turn did not come before the job ended.
    unused: int = 0

    @property
    def ended(self) -> int:
        """Files whose state is final."""
        return self.finished + self.skipped + self.failed + self.canceled + self.unused

    @classmethod
    def from_json(cls, source: Object) -> FileCounts:
        counts = {"unused": 0, **source}
        return cls(**{item.name: decode.whole(counts, item.name) for item in fields(cls)})


@dataclass(frozen=True)
class JobView:
    """A job as it was when the service answered."""

    id: str
    owner: str
    state: JobState
    #: Why it waits or is slow, most telling first.
    why: Sequence[Why]
    #: As submitted, with the service's defaults.
    options: Mapping[str, Any]
    files: FileCounts
    #: Bytes of files whose size is known.
    bytes_total: int
    #: Bytes safe at the destination.
    bytes_done: int
    #: Every tree of it has been listed.
    listed: bool
    #: Bytes a second.
    goodput: float
    eta_seconds: Optional[int]
    #: Errors by code, with how many files met each.
    errors: Mapping[str, int]
    created: datetime
    started: Optional[datetime]
    ended: Optional[datetime]

    @property
    def name(self) -> Optional[str]:
        """As submitted."""
        return decode.optional(decode.text, self.options, "name")

    @classmethod
    def from_json(cls, value: Any) -> JobView:
        source = decode.as_object(value)
        return cls(
            id=decode.text(source, "id"),
            owner=decode.text(source, "owner"),
            state=decode.member(JobState, source, "state"),
            why=[Why.from_json(item) for item in decode.listed(source, "why")],
            options=decode.inner(source, "options"),
            files=FileCounts.from_json(decode.inner(source, "files")),
            bytes_total=decode.whole(source, "bytes_total"),
            bytes_done=decode.whole(source, "bytes_done"),
            listed=decode.flag(source, "listed"),
            goodput=decode.real(source, "goodput"),
            eta_seconds=decode.optional(decode.whole, source, "eta_seconds"),
            errors=decode.counts(source, "errors"),
            created=decode.time(source, "created"),
            started=decode.optional(decode.time, source, "started"),
            ended=decode.optional(decode.time, source, "ended"),
        )


@dataclass(frozen=True)
class FileError:
    """Why a file failed."""

    #: Stable: ``not_found``, ``permission``, ``exists``, ``no_space``, ``checksum`` ...
    code: str
    message: str
    #: ``user``, ``source``, ``destination``, ``operator`` or ``service``.
    who: str
    #: The service may try again by itself.
    may_pass: bool

    @classmethod
    def from_json(cls, source: Object) -> FileError:
        return cls(
            code=decode.text(source, "code"),
            message=decode.text(source, "message"),
            who=decode.text(source, "who"),
            may_pass=decode.flag(source, "may_pass"),
        )


@dataclass(frozen=True)
class FileView:
    """A file of a job."""

    #: Its number in the job, from 0.
    index: int
    source: str
    destination: str
    bytes: Optional[int]
    state: FileState
    #: Attempts that ended.
    attempts: int
    #: Of the last attempt that failed.
    error: Optional[FileError]
    checksum: Optional[str]
    metadata: Any

    @classmethod
    def from_json(cls, value: Any) -> FileView:
        source = decode.as_object(value)
        error = decode.optional(decode.inner, source, "error")
        return cls(
            index=decode.whole(source, "index"),
            source=decode.text(source, "source"),
            destination=decode.text(source, "destination"),
            bytes=decode.optional(decode.whole, source, "bytes"),
            state=decode.member(FileState, source, "state"),
            attempts=decode.whole(source, "attempts"),
            error=None if error is None else FileError.from_json(error),
            checksum=decode.optional(decode.text, source, "checksum"),
            metadata=source.get("metadata"),
        )


@dataclass(frozen=True)
class Limits:
    """Limits of an endpoint; ``None``: no limit is set."""

    sessions: Optional[int] = None
    channels: Optional[int] = None
    bytes_per_second: Optional[int] = None
    files_per_second: Optional[int] = None

    @classmethod
    def from_json(cls, source: Object) -> Limits:
        read = decode.optional
        return cls(**{item.name: read(decode.whole, source, item.name) for item in fields(cls)})


@dataclass(frozen=True)
class Endpoint:
    """Scheme, host and port of URLs, as operators see them."""

    name: str
    #: ``open``, ``draining`` or ``banned``.
    state: str
    limits: Limits
    sessions: int
    channels: int
    goodput: float
    files_waiting: int
    why: Sequence[Why]

    @classmethod
    def from_json(cls, value: Any) -> Endpoint:
        source = decode.as_object(value)
        return cls(
            name=decode.text(source, "name"),
            state=decode.text(source, "state"),
            limits=Limits.from_json(decode.inner(source, "limits")),
            sessions=decode.whole(source, "sessions"),
            channels=decode.whole(source, "channels"),
            goodput=decode.real(source, "goodput"),
            files_waiting=decode.whole(source, "files_waiting"),
            why=[Why.from_json(item) for item in decode.listed(source, "why")],
        )


@dataclass(frozen=True)
class JobEvent:
    """Something that happened to a job."""

    #: By the clock of the service.
    at: datetime
    #: To continue after it; ``None`` for what is not kept (``Progress``).
    id: Optional[str]


@dataclass(frozen=True)
class StateChanged(JobEvent):
    """The state of the job changed."""

    state: JobState
    reason: Optional[str]


@dataclass(frozen=True)
class Started(JobEvent):
    """An agent took a part of it."""

    agent: str
    files: int
    bytes: int


@dataclass(frozen=True)
class FileFailed(JobEvent):
    """A file failed; the service may try again."""

    index: int
    attempts: int
    error: FileError


@dataclass(frozen=True)
class LeaseLost(JobEvent):
    """An agent was lost; its part goes to another."""

    agent: str
    files: int


@dataclass(frozen=True)
class Progress(JobEvent):
    """What is done; at most one a second."""

    files: FileCounts
    bytes_done: int
    goodput: float


@dataclass(frozen=True)
class OtherEvent(JobEvent):
    """An event that this version does not know."""

    event: str
    content: Mapping[str, Any] = field(repr=False)


def event_from_json(value: Any, id: Optional[str]) -> JobEvent:
    """An event of a job's stream."""
    source = decode.as_object(value)
    at, kind = decode.time(source, "at"), decode.text(source, "event")
    if kind == "state":
        state = decode.member(JobState, source, "state")
        return StateChanged(at, id, state, decode.optional(decode.text, source, "reason"))
    if kind == "started":
        sizes = decode.whole(source, "files"), decode.whole(source, "bytes")
        return Started(at, id, decode.text(source, "agent"), *sizes)
    if kind == "file_failed":
        numbers = decode.whole(source, "index"), decode.whole(source, "attempts")
        return FileFailed(at, id, *numbers, FileError.from_json(decode.inner(source, "error")))
    if kind == "lease_lost":
        return LeaseLost(at, id, decode.text(source, "agent"), decode.whole(source, "files"))
    if kind == "progress":
        files = FileCounts.from_json(decode.inner(source, "files"))
        return Progress(
            at, id, files, decode.whole(source, "bytes_done"), decode.real(source, "goodput")
        )
    return OtherEvent(at, id, kind, source)


@dataclass(frozen=True)
class Page(Generic[T]):
    """A part of a list."""

    items: List[T]
    #: Where the next one begins; ``None``: this was the last.
    next: Optional[str]

    @classmethod
    def from_json(cls, value: Any, read: Callable[[Any], T]) -> Page[T]:
        source = decode.as_object(value)
        items = [read(item) for item in decode.listed(source, "items")]
        return cls(items, decode.optional(decode.text, source, "next"))
