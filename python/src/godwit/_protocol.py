"""Calls of the API without I/O: what is sent, what is tried again, how answers are read.

A call is a generator. It yields ``Send`` and gets an ``Answer`` or ``Lost``, or yields ``Pause``;
it returns the result. ``godwit.service`` and ``godwit.aio`` carry calls out, so that both have the
same rules.
"""

from __future__ import annotations

import json
import random
import re
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Callable, Dict, Generator, Iterable, Iterator, List, Mapping, Optional
from typing import Sequence, TypeVar, Union
from urllib.parse import quote, urlencode

from . import _decode as decode
from ._delegation import Issuer
from .errors import BadAnswer, JobFailed, Problem, Unreachable, refusal
from .model import Copy, Endpoint, FileState, FileView, JobOptions, JobState, JobView, Limits, Page

T = TypeVar("T")

#: Most bytes of an answer that is not a stream.
ANSWER_BYTES_MAX = 16 << 20

#: Most items of a page.
PAGE_MAX = 1000

#: Files of a submission that are sent as one JSON object, which can be sent again.
INLINE_FILES_MAX = 10_000

#: Lines of a long list are sent in parts of about this size.
_PART_BYTES = 256 << 10

#: Tries of an event stream in a row that bring nothing.
RECONNECTS_MAX = 30

#: Seconds after a lost stream until the next try.
RECONNECT_PAUSE = 2.0


@dataclass(frozen=True)
class Limit:
    """Seconds that parts of a request may take, and how often it is tried."""

    connect: float = 20.0
    #: Longest silence within an answer; event streams send a comment more often than that.
    read: float = 60.0
    #: A whole answer that is not a stream.
    answer: float = 300.0
    #: Tries after the first.
    retries: int = 4
    #: Longest pause between two tries. A service that asks for a longer one is not asked again.
    pause: float = 60.0

    def __post_init__(self) -> None:
        times = (self.connect, self.read, self.answer, self.pause)
        if not all(0 < seconds < float("inf") for seconds in times) or self.retries < 0:
            raise ValueError("a limit is more than 0 and has an end")


@dataclass(frozen=True)
class Request:
    """A request below the address of the service."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    content: Union[bytes, Iterable[bytes], None] = None
    #: Twice is as good as once.
    is_repeatable: bool = True


@dataclass(frozen=True)
class Answer:
    """An answer. Of an error stream and of all that is no stream the body is here."""

    status: int
    body: bytes
    retry_after: Optional[str] = None


@dataclass(frozen=True)
class Lost:
    """There was no answer."""

    error: Exception
    #: The service has not seen the request.
    is_unsent: bool


@dataclass(frozen=True)
class Send:
    """To be sent."""

    request: Request


@dataclass(frozen=True)
class Pause:
    """Nothing is to be sent for so long."""

    seconds: float


Step = Union[Send, Pause]
Reply = Union[Answer, Lost, None]
Call = Generator[Step, Reply, T]


def problem_of(answer: Answer) -> Problem:
    """What an error says; a gateway before the service may say it in other words."""
    after = answer.retry_after
    seconds = int(after) if after and re.fullmatch("[0-9]{1,9}", after) else None
    try:
        source = decode.as_object(decode.parse(answer.body))
        return Problem(
            status=answer.status,
            code=decode.text(source, "code")[:100],
            title=decode.text(source, "title")[:1000],
            detail=decode.text(source, "detail")[:10_000],
            pointer=decode.optional(decode.text, source, "pointer"),
            retry_after=decode.optional(decode.whole, source, "retry_after") or seconds,
        )
    except BadAnswer:
        title, detail = f"error {answer.status}", "the answer gives no details"
        return Problem(answer.status, f"http_{answer.status}", title, detail, None, seconds)


def _pause_before_next(request: Request, reply: Reply, tries: int, limit: Limit) -> Optional[float]:
    """Seconds until the next try; ``None``: there is none."""
    if tries > limit.retries:
        return None
    backoff = min(limit.pause, 0.5 * 2.0 ** (tries - 1) * random.uniform(0.75, 1.25))
    if isinstance(reply, Lost):
        return backoff if reply.is_unsent or request.is_repeatable else None
    if not isinstance(reply, Answer):
        return None
    # Of these the service says that it did nothing.
    refused = reply.status in (429, 503)
    if not refused and not (reply.status in (502, 504) and request.is_repeatable):
        return None
    wanted = problem_of(reply).retry_after
    if wanted is None:
        return backoff
    return max(backoff, float(wanted)) if wanted <= limit.pause else None


def exchange(request: Request, limit: Limit) -> Call[Answer]:
    """Sends a request until it is answered, within the limits; an error answer is raised."""
    tries = 0
    while True:
        reply = yield Send(request)
        tries += 1
        if isinstance(reply, Answer) and 200 <= reply.status < 300:
            return reply
        pause = None
        # The parts of a long list are gone once they are sent.
        if request.content is None or isinstance(request.content, bytes):
            pause = _pause_before_next(request, reply, tries, limit)
        if pause is None:
            break
        yield Pause(pause)
    if isinstance(reply, Answer):
        raise refusal(problem_of(reply))
    if isinstance(reply, Lost):
        raise Unreachable(f"no answer of the service: {reply.error}") from reply.error
    raise AssertionError("a request has an answer or none")


def _path(*parts: str) -> str:
    return "/api/v1/" + "/".join(quote(part, safe="") for part in parts)


def _query(path: str, **values: Union[str, int, None]) -> str:
    given = {name: value for name, value in values.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def job_id(id: Union[str, uuid.UUID]) -> str:
    """An id is a UUID, whatever its letters are."""
    return str(uuid.UUID(str(id)))


def _job(request: Request, limit: Limit) -> Call[JobView]:
    answer = yield from exchange(request, limit)
    return JobView.from_json(decode.parse(answer.body))


def _lines(options: JobOptions, files: Iterator[Copy]) -> Iterator[bytes]:
    part = bytearray(_json({"options": options.to_json()}) + b"\n")
    for file in files:
        part += _json(file.to_json()) + b"\n"
        if len(part) >= _PART_BYTES:
            yield bytes(part)
            part.clear()
    yield bytes(part)


def submit(
    files: Iterable[Copy], options: JobOptions, key: Optional[str], limit: Limit
) -> Call[JobView]:
    """A new job. Without a key of the caller's it gets one, so that it can be sent again."""
    key = str(uuid.uuid4()) if key is None else key
    if not re.fullmatch("[!-~]{1,255}", key):
        raise ValueError("an idempotency key is 1 to 255 visible ASCII characters")
    headers = {"idempotency-key": key}
    rest = iter(files)
    first: List[Copy] = []
    for file in rest:
        first.append(file)
        if len(first) > INLINE_FILES_MAX:
            break
    content: Union[bytes, Iterable[bytes]]
    if len(first) <= INLINE_FILES_MAX:
        inline = [file.to_json() for file in first]
        content = _json({"files": inline, "options": options.to_json()})
        headers["content-type"] = "application/json"
    else:
        content = _lines(options, _chained(first, rest))
        headers["content-type"] = "application/x-ndjson"
    return _job(Request("POST", _path("jobs"), headers, content), limit)


def _chained(first: Sequence[Copy], rest: Iterator[Copy]) -> Iterator[Copy]:
    yield from first
    yield from rest


def job(id: str, limit: Limit) -> Call[JobView]:
    """A job as it is now."""
    return _job(Request("GET", _path("jobs", id)), limit)


#: Changes that do no more if they are made twice.
_SAFE_VERBS = ("cancel", "pause", "resume")


def change_state(id: str, verb: str, limit: Limit) -> Call[JobView]:
    """``cancel``, ``retry``, ``pause`` or ``resume``."""
    request = Request("POST", _path("jobs", id, verb), is_repeatable=verb in _SAFE_VERBS)
    return _job(request, limit)


def change(id: str, priority: Optional[int], name: Optional[str], limit: Limit) -> Call[JobView]:
    """Another priority or name."""
    values = {"priority": priority, "name": name}
    content = _json({key: value for key, value in values.items() if value is not None})
    headers = {"content-type": "application/json"}
    return _job(Request("PATCH", _path("jobs", id), headers, content), limit)


def _page(path: str, read: Callable[[Any], T], limit: Limit) -> Call[Page[T]]:
    answer = yield from exchange(Request("GET", path), limit)
    return Page.from_json(decode.parse(answer.body), read)


def jobs(
    states: Sequence[JobState],
    owner: Optional[str],
    all_users: bool,
    size: int,
    cursor: Optional[str],
    limit: Limit,
) -> Call[Page[JobView]]:
    """A page of jobs, the latest first."""
    wanted = ",".join(JobState(state).value for state in states) or None
    everyone = "true" if all_users else None
    path = _query(
        _path("jobs"), state=wanted, owner=owner, all=everyone, limit=size, cursor=cursor
    )
    return _page(path, JobView.from_json, limit)


def files(
    id: str, state: Optional[FileState], cursor: Optional[str], limit: Limit
) -> Call[Page[FileView]]:
    """A page of a job's files, in the order of their numbers."""
    wanted = None if state is None else FileState(state).value
    path = _query(_path("jobs", id, "files"), state=wanted, limit=PAGE_MAX, cursor=cursor)
    return _page(path, FileView.from_json, limit)


def endpoints(limit: Limit) -> Call[List[Endpoint]]:
    """All endpoints, for operators."""
    answer = yield from exchange(Request("GET", _path("endpoints")), limit)
    return [Endpoint.from_json(item) for item in decode.as_list(decode.parse(answer.body))]


def set_endpoint(name: str, state: str, limits: Limits, limit: Limit) -> Call[None]:
    """Opens, drains or bans an endpoint and limits it, for operators."""
    given = {key: value for key, value in vars(limits).items() if value is not None}
    content = _json({"name": name, "state": state, "limits": given})
    headers = {"content-type": "application/json"}
    yield from exchange(Request("PUT", _path("endpoints"), headers, content), limit)


def user_name(limit: Limit) -> Call[str]:
    """Name of the user whose token it is."""
    answer = yield from exchange(Request("GET", _path("me")), limit)
    return decode.text(decode.as_object(decode.parse(answer.body)), "name")


#: Seconds that a delegated proxy lasts, and those that are left when it is replaced.
PROXY_SECONDS = 24 * 3600.0
_PROXY_SECONDS_MIN = 2 * 3600.0


def delegate(issuer: Issuer, seconds: float, limit: Limit) -> Call[datetime]:
    """Signs a proxy for the service, unless one lasts; returns when that ends."""
    answer = yield from exchange(Request("GET", _path("delegation")), limit)
    view = decode.as_object(decode.parse(answer.body))
    stored = decode.optional(decode.time, view, "expires")
    if stored is not None:
        left = (stored - datetime.now(timezone.utc)).total_seconds()
        if left > _PROXY_SECONDS_MIN or stored >= issuer.ends:
            return stored
    answer = yield from exchange(Request("POST", _path("delegation", "request")), limit)
    wanted = decode.text(decode.as_object(decode.parse(answer.body)), "request")
    content = _json({"chain": issuer.sign(wanted, seconds)})
    headers = {"content-type": "application/json"}
    request = Request("PUT", _path("delegation"), headers, content, is_repeatable=False)
    answer = yield from exchange(request, limit)
    return decode.time(decode.as_object(decode.parse(answer.body)), "expires")


def events(id: str, after: Optional[str]) -> Request:
    """The stream of a job's events."""
    headers: Dict[str, str] = {"accept": "text/event-stream"}
    if after is not None:
        if not re.fullmatch("[0-9]{1,20}", after):
            raise ValueError("after: the id of an event is a number")
        headers["last-event-id"] = after
    return Request("GET", _path("jobs", id, "events"), headers)


def checked(view: JobView, check: bool) -> JobView:
    """A job that ended; ``check``: one without all of its files is an error."""
    if check and view.state is not JobState.FINISHED:
        raise JobFailed(view)
    return view
