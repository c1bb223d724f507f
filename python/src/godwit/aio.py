"""The transfer service and the local program for asyncio.

The same shape as ``godwit.service`` and ``godwit.local``.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import asynccontextmanager
from datetime import datetime
from types import TracebackType
from typing import AsyncIterator, Iterable, List, Optional, Sequence, Type, TypeVar, Union

import httpx

from . import _http, _protocol, _settings
from ._delegation import Issuer, path_of
from ._follow import LONGEST_WAIT, LOOK_PAUSE, Deadline, Follower
from ._local_aio import Transfer, copy, start_copy, start_sync, sync
from ._protocol import Answer, Call, Limit, Lost, Reply, Request, Send
from ._sse import Parser
from .errors import DelegationError, Unreachable, WaitTimeout
from .model import Copy, Endpoint, FileState, FileView, JobEvent, JobOptions, JobState, JobView
from .model import Limits
from .progress import Shown, chosen

__all__ = ["Job", "Service", "Transfer", "copy", "start_copy", "start_sync", "sync"]

T = TypeVar("T")


class Service:
    """A transfer service.

    Without arguments: that of ``GODWIT_SERVICE`` and ``GODWIT_SERVICE_TOKEN``, else the one that
    ``godwit-service serve`` runs on this machine, with the token that it stored for this user.
    """

    def __init__(
        self,
        url: Optional[str] = None,
        token: Optional[str] = None,
        *,
        token_file: Optional[_settings.PathLike] = None,
        ca: Optional[_settings.PathLike] = None,
        limit: Limit = Limit(),
        allow_plain_http: bool = False,
        transport: Optional[httpx.AsyncBaseTransport] = None,
    ) -> None:
        target = _settings.target(url, token, token_file, allow_plain_http)
        self._limit = limit
        self._client = httpx.AsyncClient(
            **_http.arguments(target, limit, ca, transport is not None), transport=transport
        )
        self.url = target.url
        self._is_protected = target.is_local or target.url.startswith("https:")

    def __repr__(self) -> str:
        return f"Service({self.url!r})"

    async def __aenter__(self) -> Service:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes its connections."""
        await self._client.aclose()

    async def submit(
        self,
        source: str,
        destination: str,
        *,
        recursive: bool = False,
        options: JobOptions = JobOptions(),
        idempotency_key: Optional[str] = None,
    ) -> Job:
        """Submits a job of one copy; ``destination`` is the URL of the copy itself."""
        copy = Copy(source, destination, recursive=recursive)
        return await self.submit_all([copy], options=options, idempotency_key=idempotency_key)

    async def submit_all(
        self,
        files: Iterable[Copy],
        *,
        options: JobOptions = JobOptions(),
        idempotency_key: Optional[str] = None,
    ) -> Job:
        """Submits a job of any number of copies, which are not kept in memory together."""
        call = _protocol.submit(files, options, idempotency_key, self._limit)
        return Job(self, await self._run(call))

    async def job(self, id: Union[str, uuid.UUID]) -> Job:
        """The job of this id."""
        return Job(self, await self._run(_protocol.job(_protocol.job_id(id), self._limit)))

    async def jobs(
        self,
        states: Sequence[JobState] = (),
        *,
        owner: Optional[str] = None,
        all_users: bool = False,
        most: Optional[int] = None,
    ) -> AsyncIterator[Job]:
        """Jobs, the latest first, page by page."""
        cursor: Optional[str] = None
        left = most
        while left is None or left > 0:
            size = _protocol.PAGE_MAX if left is None else min(left, _protocol.PAGE_MAX)
            page = await self._run(
                _protocol.jobs(states, owner, all_users, size, cursor, self._limit)
            )
            for view in page.items[:size]:
                yield Job(self, view)
            left = None if left is None else left - len(page.items)
            cursor = page.next
            if cursor is None:
                return

    async def endpoints(self) -> List[Endpoint]:
        """All endpoints; for operators."""
        return await self._run(_protocol.endpoints(self._limit))

    async def set_endpoint(self, name: str, state: str = "open", limits: Limits = Limits()) -> None:
        """Opens, drains (``draining``) or bans (``banned``) an endpoint; for operators."""
        await self._run(_protocol.set_endpoint(name, state, limits, self._limit))

    async def delegate(
        self,
        proxy: Optional[_settings.PathLike] = None,
        *,
        lifetime: float = _protocol.PROXY_SECONDS,
    ) -> datetime:
        """Lets the service log in as the user at ``gsiftp`` servers; returns until when.

        ``proxy`` signs a proxy for the service's own key: that of ``X509_USER_PROXY``, else
        ``/tmp/x509up_u`` and the number of the user. Where one lasts two hours, nothing is done.
        """
        if not self._is_protected:
            raise DelegationError("the service is reached by plain HTTP")
        issuer = Issuer(path_of(proxy))
        return await self._run(_protocol.delegate(issuer, lifetime, self._limit))

    async def user_name(self) -> str:
        """Name of the user whose token it is."""
        return await self._run(_protocol.user_name(self._limit))

    async def _run(self, call: Call[T]) -> T:
        reply: Reply = None
        while True:
            try:
                step = call.send(reply)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Send):
                reply = await self._send(step.request)
            else:
                await asyncio.sleep(step.seconds)
                reply = None

    async def _send(self, request: Request) -> Reply:
        end = Deadline(self._limit.answer)
        try:
            async with self._opened(request, self._limit.read) as answer:
                body = _http.Body(end)
                async for part in answer.aiter_raw():
                    body.add(part)
                return _http.answer_of(answer, body)
        except httpx.TransportError as error:
            return Lost(error, _http.is_unsent(error))

    @asynccontextmanager
    async def _opened(self, request: Request, read: float) -> AsyncIterator[httpx.Response]:
        parts = _http.parts(request, self._limit, read)
        if request.content is not None and not isinstance(request.content, bytes):
            parts["content"] = _without_waiting(request.content)
        built = self._client.build_request(**parts)
        answer = await self._client.send(built, stream=True)
        try:
            _http.check_encoding(answer)
            yield answer
        finally:
            await answer.aclose()


async def _without_waiting(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    """What the caller lists, which is made while it is sent."""
    for part in parts:
        yield part


class Job:
    """A job, as it was when it was last asked for: ``view``."""

    def __init__(self, service: Service, view: JobView) -> None:
        self._service = service
        self.view = view

    def __repr__(self) -> str:
        return f"Job({self.id!r}, {self.state.value})"

    @property
    def id(self) -> str:
        """Its name for machines."""
        return self.view.id

    @property
    def state(self) -> JobState:
        """Where it was."""
        return self.view.state

    async def refresh(self) -> JobView:
        """Asks the service."""
        return await self._take(_protocol.job(self.id, self._service._limit))

    async def cancel(self) -> JobView:
        """Ends it for good; files that are complete stay."""
        return await self._change("cancel")

    async def retry(self) -> JobView:
        """Tries its failed files again."""
        return await self._change("retry")

    async def pause(self) -> JobView:
        """Stops it; partial files stay for ``resume``."""
        return await self._change("pause")

    async def resume(self) -> JobView:
        """Lets it continue."""
        return await self._change("resume")

    async def change(
        self, *, priority: Optional[int] = None, name: Optional[str] = None
    ) -> JobView:
        """Gives it another priority or name."""
        return await self._take(_protocol.change(self.id, priority, name, self._service._limit))

    async def files(self, state: Optional[FileState] = None) -> AsyncIterator[FileView]:
        """Its files in the order of their numbers, page by page."""
        cursor: Optional[str] = None
        while True:
            call = _protocol.files(self.id, state, cursor, self._service._limit)
            page = await self._service._run(call)
            for item in page.items:
                yield item
            cursor = page.next
            if cursor is None:
                return

    async def events(
        self, after: Optional[str] = None, timeout: float = LONGEST_WAIT
    ) -> AsyncIterator[JobEvent]:
        """Its events as they happen, until it has ended. ``after``: the id of an event."""
        end = Deadline(timeout)
        follower = Follower(self.id, after)
        while True:
            why: Exception = Unreachable("the stream ended")
            try:
                async for event in self._stream(follower, end):
                    yield event
                if follower.is_done(await self.refresh()):
                    return
            except (httpx.TransportError, Unreachable) as error:
                why = error
            if end.is_over:
                raise WaitTimeout(self.view, end.seconds)
            await asyncio.sleep(end.within(follower.pause(why)))

    async def wait(
        self, timeout: float = LONGEST_WAIT, *, progress: Shown = True, check: bool = True
    ) -> JobView:
        """Waits until it has ended, and shows how far it is.

        ``check``: a job that is not ``finished`` raises ``JobFailed``. Ending the wait does not end
        the job.
        """
        show = chosen(progress)
        looked = 0.0
        async for _ in self.events(timeout=timeout):
            if time.monotonic() - looked >= LOOK_PAUSE:
                show(await self.refresh())
                looked = time.monotonic()
        view = await self.refresh()
        show(view)
        return _protocol.checked(view, check)

    async def _change(self, verb: str) -> JobView:
        return await self._take(_protocol.change_state(self.id, verb, self._service._limit))

    async def _take(self, call: Call[JobView]) -> JobView:
        self.view = await self._service._run(call)
        return self.view

    async def _stream(self, follower: Follower, end: Deadline) -> AsyncIterator[JobEvent]:
        service = self._service
        parser = Parser()
        async with service._opened(follower.request(), end.within(service._limit.read)) as answer:
            if answer.status_code != 200:
                body = _http.Body(Deadline(service._limit.answer))
                async for part in answer.aiter_raw():
                    body.add(part)
                raise _http.stream_error(_http.answer_of(answer, body))
            async for part in answer.aiter_raw():
                for message in parser.feed(part):
                    yield follower.take(message)
                if end.is_over:
                    return
