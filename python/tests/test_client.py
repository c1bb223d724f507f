"""What the client does with answers that are wrong, late, long or missing."""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

import httpx
import pytest

import godwit
from godwit import Copy, JobOptions, Limit, aio, errors, service
from godwit._sse import EVENT_BYTES_MAX, Parser
from godwit.model import JobEvent, JobState, OtherEvent, Progress, StateChanged

ID = "018f0000-0000-7000-8000-000000000001"
Handler = Callable[[httpx.Request], httpx.Response]


def view(**changes: Any) -> Dict[str, Any]:
    zero = dict.fromkeys(["total", "finished", "skipped", "failed", "canceled"], 0)
    job: Dict[str, Any] = {
        "id": ID,
        "owner": "jo",
        "state": "active",
        "why": [],
        "options": {},
        "files": zero,
        "bytes_total": 0,
        "bytes_done": 0,
        "listed": True,
        "goodput": 0.0,
        "eta_seconds": None,
        "errors": {},
        "created": "2030-01-31T12:00:00.123456789Z",
        "started": None,
        "ended": None,
    }
    return {**job, **changes}


def problem(status: int, code: str, **more: Any) -> httpx.Response:
    body = {"type": "about:blank", "title": "no", "status": status, "detail": "d", "code": code}
    return httpx.Response(status, json={**body, **more})


class Transport(httpx.MockTransport):
    """Bodies are read when the client reads them, in both directions."""

    def __init__(self, handler: Handler) -> None:
        super().__init__(handler)
        self._handler = handler

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._handler(request)
        if not answer.is_stream_consumed:
            return answer
        stream = httpx.ByteStream(answer.content)
        return httpx.Response(answer.status_code, headers=answer.headers, stream=stream)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self.handle_request(request)


def client(handler: Handler, limit: Limit = Limit()) -> godwit.Service:
    transport = Transport(handler)
    return godwit.Service("https://service.example.org", "t0ken", limit=limit, transport=transport)


def answers(*given: httpx.Response) -> Handler:
    left = list(given)
    return lambda request: left.pop(0)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> List[float]:
    slept: List[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    return slept


@pytest.mark.parametrize(
    "status, code, kind",
    [
        (401, "unauthenticated", errors.Unauthenticated),
        (403, "forbidden", errors.Forbidden),
        (404, "not_found", errors.NotFound),
        (409, "conflict", errors.Conflict),
        (422, "idempotency_key_reused", errors.KeyReused),
        (422, "invalid_url", errors.InvalidRequest),
        (418, "of_a_newer_service", errors.InvalidRequest),
        (500, "internal", errors.InternalError),
    ],
)
def test_codes_are_exceptions(status: int, code: str, kind: type) -> None:
    with pytest.raises(kind) as refused:
        client(answers(problem(status, code, pointer="/files/0"))).job(ID)
    error = refused.value
    assert isinstance(error, errors.Refused)
    assert (error.code, error.status, error.problem.pointer) == (code, status, "/files/0")


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="<html>"),
        httpx.Response(200, text="[" * 100_000),
        httpx.Response(200, text="[]"),
        httpx.Response(200, json=view(state="of_a_newer_service")),
        httpx.Response(200, json=view(bytes_done=-1)),
        httpx.Response(200, json=view(bytes_done=True)),
        httpx.Response(200, json=view(created="yesterday")),
        httpx.Response(200, json=view(created="2030-01-31T12:00:00+02:00")),
        httpx.Response(200, json=view(files=None)),
        httpx.Response(200, json=view(errors={"x": "y"})),
        httpx.Response(200, text=json.dumps(view()).replace("0.0", "NaN")),
        httpx.Response(200, text=json.dumps(view()).replace("0.0", "1" + "0" * 400)),
        httpx.Response(200, text=json.dumps(view()).replace("0.0", "1" + "0" * 5000)),
        httpx.Response(200, content=b" " * (17 << 20)),
        httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"x")),
    ],
    ids=range(15),
)
def test_answers_of_no_service_are_refused(answer: httpx.Response) -> None:
    with pytest.raises(errors.BadAnswer):
        client(answers(answer)).job(ID)


def test_unknown_fields_are_skipped_and_times_have_a_zone() -> None:
    job = client(answers(httpx.Response(200, json=view(of_later=1)))).job(ID)
    assert job.view.created.isoformat() == "2030-01-31T12:00:00.123456+00:00"


def test_errors_of_gateways_have_a_code() -> None:
    with pytest.raises(errors.Refused) as refused:
        client(answers(httpx.Response(301, text="moved", headers={"location": "http://x"}))).job(ID)
    assert refused.value.code == "http_301"


def test_what_may_pass_is_tried_again_as_late_as_the_service_says(pauses: List[float]) -> None:
    busy = problem(429, "rate_limit", retry_after=7)
    stopping = httpx.Response(503, headers={"retry-after": "3"})
    job = client(answers(busy, stopping, httpx.Response(200, json=view()))).job(ID)
    assert job.state is JobState.ACTIVE and pauses == [7.0, 3.0]


def test_tries_are_limited_and_long_pauses_are_not_waited_for(pauses: List[float]) -> None:
    with pytest.raises(errors.Unavailable):
        client(lambda request: problem(503, "stopping"), Limit(retries=2)).job(ID)
    assert len(pauses) == 2
    with pytest.raises(errors.LimitReached) as refused:
        client(answers(problem(429, "quota", retry_after=61))).job(ID)
    assert refused.value.problem.retry_after == 61 and len(pauses) == 2


def lost(error: httpx.TransportError, then: Handler) -> Handler:
    seen: List[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if len(seen) == 1:
            raise error
        return then(request)

    return handler


def test_a_request_that_may_have_been_done_is_repeated_only_if_that_is_harmless(
    pauses: List[float],
) -> None:
    broken, absent = httpx.ReadError("broken"), httpx.ConnectError("refused")
    ok: Handler = lambda request: httpx.Response(200, json=view())
    assert client(lost(broken, ok)).job(ID).id == ID
    job = client(lost(broken, ok)).submit("ftp://a/x", "ftp://b/x")
    first = client(lost(absent, ok)).job(ID)
    assert job.id == first.id == ID
    for error, is_repeated in ((broken, False), (absent, True)):
        job = service.Job(client(lost(error, ok)), job.view)
        if is_repeated:
            assert job.retry().id == ID
        else:
            with pytest.raises(errors.Unreachable):
                job.retry()


def test_repeated_submissions_have_one_key(pauses: List[float]) -> None:
    keys: List[str] = []
    notify = [{"webhook": {"url": "u"}}, {"mail": {"address": "a@b"}}]

    def handler(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["idempotency-key"])
        body = json.loads(request.content)
        assert body["options"] == {"class": "scavenger", "notify": notify}
        assert body["files"] == [{"source": "ftp://a/x", "destination": "ftp://b/x", "bytes": 0}]
        return problem(503, "stopping") if len(keys) < 3 else httpx.Response(201, json=view())

    options = JobOptions(job_class=godwit.Class.SCAVENGER, webhooks=["u"], mails=["a@b"])
    client(handler).submit_all([Copy("ftp://a/x", "ftp://b/x", bytes=0)], options=options)
    assert len(keys) == 3 and len(set(keys)) == 1


def test_a_long_list_is_sent_once_and_not_kept() -> None:
    made: List[int] = []

    def many() -> Iterator[Copy]:
        for number in range(30_000):
            made.append(number)
            yield Copy(f"ftp://a/{number}", "ftp://b/x" + "y" * 100)

    def handler(request: httpx.Request) -> httpx.Response:
        assert request.headers["content-type"] == "application/x-ndjson"
        before = len(made)
        assert before < 11_000
        lines = b"".join(request.stream).splitlines()  # type: ignore[arg-type]
        assert json.loads(lines[0]) == {"options": {}} and len(lines) == 30_001
        return problem(503, "stopping")

    with pytest.raises(errors.Unavailable):
        client(handler).submit_all(many())


def test_arguments_that_make_no_sense_are_refused_before_anything_is_sent() -> None:
    nothing = client(answers())
    with pytest.raises(ValueError):
        nothing.job("../users")
    with pytest.raises(ValueError):
        nothing.submit("ftp://a/x", "ftp://b/x", idempotency_key="a\nb")
    with pytest.raises(ValueError):
        list(nothing.jobs(["no state"]))  # type: ignore[list-item]
    with pytest.raises(ValueError):
        Limit(read=float("inf"))
    with pytest.raises(ValueError):
        service.Job(nothing, client(answers(httpx.Response(200, json=view()))).job(ID).view).wait(
            float("inf")
        )


@pytest.mark.parametrize(
    "url", ["", "ftp://h", "h:8447", "http://u:pw@127.0.0.1", "https://", "https://h/?token=x"]
)
def test_addresses_of_no_service_are_refused(url: str) -> None:
    with pytest.raises(ValueError) as refused:
        godwit.Service(url or "/", "t0ken")
    assert "pw" not in str(refused.value)


def test_a_token_goes_to_other_machines_by_https_only() -> None:
    with pytest.raises(ValueError):
        godwit.Service("http://service.example.org", "t0ken")
    godwit.Service("http://service.example.org", "t0ken", allow_plain_http=True)
    with pytest.raises(ValueError):
        godwit.Service("https://service.example.org", "t0\nken")


def test_the_token_of_this_machine_is_for_its_service_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "godwit" / "service"
    kept.mkdir(parents=True)
    (kept / "token").write_text("gwt_kept\nmore\n")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    seen: List[Optional[str]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("authorization"))
        return httpx.Response(200, json={"name": "jo"})

    transport = Transport(handler)
    godwit.Service(transport=transport).user_name()
    godwit.Service("https://other.example.org", transport=transport).user_name()
    monkeypatch.setenv("GODWIT_SERVICE", "https://third.example.org/")
    monkeypatch.setenv("GODWIT_SERVICE_TOKEN", "of-environment")
    third = godwit.Service(transport=transport)
    third.user_name()
    assert third.url == "https://third.example.org"
    assert seen == ["Bearer gwt_kept", None, "Bearer of-environment"]


def test_no_text_of_the_client_has_the_token() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("broken")

    one = client(handler, Limit(retries=0))
    with pytest.raises(errors.Unreachable) as failed:
        one.job(ID)
    assert "t0ken" not in f"{one!r}{failed.value!r}{failed.value}{vars(one)}"


def event(number: int, **content: Any) -> bytes:
    text = json.dumps({"at": "2030-01-31T12:00:00Z", **content})
    return f"id: {number}\ndata: {text}\n\n".encode()


def test_a_stream_that_breaks_continues_after_its_last_event(pauses: List[float]) -> None:
    asked: List[Optional[str]] = []
    state = {"state": "active"}

    def stream(request: httpx.Request) -> Iterator[bytes]:
        asked.append(request.headers.get("last-event-id"))
        if len(asked) == 1:
            yield b": hello\n\n" + event(1, event="state", state="active", reason=None)
            yield event(2, event="news", of="later")[:-3]
            raise httpx.ReadError("broken")
        if len(asked) == 2:
            yield event(2, event="news", of="later")
            return
        if len(asked) == 3:
            raise httpx.ConnectError("refused")
        state["state"] = "finished"
        yield event(3, event="state", state="finished", reason="done")

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/events"):
            return httpx.Response(200, content=stream(request))
        return httpx.Response(200, json=view(**state))

    events = list(client(handler).job(ID).events())
    assert [event.id for event in events] == ["1", "2", "3"]
    assert isinstance(events[1], OtherEvent) and events[1].content["of"] == "later"
    assert asked == [None, "1", "2", "2"] and len(pauses) == 3


def test_a_stream_that_never_comes_is_given_up(pauses: List[float]) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/events"):
            return problem(503, "stopping")
        return httpx.Response(200, json=view())

    with pytest.raises(errors.Unreachable):
        list(client(handler).job(ID).events())
    assert len(pauses) == 30


def test_a_stream_of_another_user_is_refused_at_once() -> None:
    handler = answers(httpx.Response(200, json=view()), problem(404, "not_found"))
    with pytest.raises(errors.NotFound):
        list(client(handler).job(ID).events())


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_read_however_they_are_cut(size: int) -> None:
    text = (
        b"\xef\xbb\xbf: comment\r\n\r\nid: 1\rdata: a\rdata:b\r\r"
        b"id: 2\r\nevent: x\r\ndata\r\n\r\nid: not a number\ndata: \xff\xc3\xa9\n\nid: 9\n\ndata: z"
    )
    parser = Parser()
    found = [
        (message.id, message.data)
        for start in range(0, len(text), size)
        for message in parser.feed(text[start : start + size])
    ]
    assert found == [("1", "a\nb"), ("2", ""), (None, "\ufffd\xe9")]


def test_an_endless_event_is_refused() -> None:
    for part in (b"data: " + b"x" * 1000, b"data: x\n" * 100):
        parser = Parser()
        with pytest.raises(errors.BadAnswer):
            for _ in range(2 * EVENT_BYTES_MAX // 700):
                list(parser.feed(part))


def test_lists_are_read_page_by_page() -> None:
    pages = {None: ([1, 2], "a"), "a": ([], "b"), "b": ([3], None)}

    def handler(request: httpx.Request) -> httpx.Response:
        items, after = pages[request.url.params.get("cursor")]
        owners = [view(owner=str(item)) for item in items]
        return httpx.Response(200, json={"items": owners, "next": after})

    assert [job.view.owner for job in client(handler).jobs()] == ["1", "2", "3"]
    assert [job.view.owner for job in client(handler).jobs(most=2)] == ["1", "2"]


def test_both_clients_have_one_shape() -> None:
    def shape(kind: type) -> Dict[str, List[str]]:
        methods = inspect.getmembers(kind, inspect.isfunction)
        return {
            name: [str(p).replace("Async", "") for p in inspect.signature(f).parameters.values()]
            for name, f in methods
            if not name.startswith("_") or name == "__init__"
        }

    assert {"submit", "jobs", "wait"} & set(shape(service.Service)) == {"submit", "jobs"}
    for name in ("Service", "Job"):
        ours = shape(getattr(service, name))
        theirs = shape(getattr(aio, name))
        theirs["aclose" if "aclose" in ours else "close"] = ours.get("close", ["self"])
        ours.setdefault("close", ["self"])
        assert ours == theirs


def test_asyncio_tries_again_and_reads_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: List[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    left = [problem(503, "stopping"), httpx.Response(200, json=view(state="finished"))]

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/events"):
            content = event(7, event="state", state="finished", reason=None)
            return httpx.Response(200, content=content)
        return left.pop(0) if len(left) > 1 else left[0]

    async def events() -> List[JobEvent]:
        transport = Transport(handler)
        async with aio.Service("https://h", "t", transport=transport) as one:
            job = await one.job(ID)
            await job.wait(10, progress=False)
            return [event async for event in job.events()]

    found = asyncio.run(events())
    assert len(slept) == 1 and isinstance(found[0], StateChanged) and found[0].id == "7"
    assert not isinstance(found[0], Progress)
