"""Copies by the program ``godwit`` of this machine, for asyncio; see ``godwit.local``."""

from __future__ import annotations

import asyncio
import os
import signal
from types import TracebackType
from typing import TYPE_CHECKING, AsyncIterator, Callable, List, Optional, Sequence, Type, Union

from . import _program
from ._follow import LONGEST_WAIT, Deadline
from ._program import Access, CopyOptions, Place, Record, SyncOptions
from .errors import Interrupted
from .events import Event, Summary
from .local import copy_command, sync_command

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: Bytes that are read at a time.
_PART_BYTES = 64 << 10


class Transfer:
    """A running copy: an asynchronous iterator of its events, which have to be read so that it
    continues.

    As a context manager it ends the program at its end.
    """

    def __init__(self, command: List[str], access: Access, timeout: float) -> None:
        self._command, self._access = command, access
        self._end = Deadline(timeout)
        self._record = Record()
        self._process: Optional[asyncio.subprocess.Process] = None
        self._transport: Optional[asyncio.ReadTransport] = None

    async def __aenter__(self) -> Transfer:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.cancel()

    async def __aiter__(self) -> AsyncIterator[Event]:
        events = await self._start()
        assert self._process is not None and self._process.stderr is not None
        messages = asyncio.ensure_future(self._hear(self._process.stderr))
        try:
            while True:
                part = await asyncio.wait_for(events.read(_PART_BYTES), self._end.left)
                if not part:
                    break
                for event in self._record.feed(part):
                    yield event
            await asyncio.wait_for(messages, self._end.left)
        except asyncio.TimeoutError:
            await self.cancel()
            raise Interrupted(f"godwit ran longer than {self._end.seconds:g} s", 130) from None
        finally:
            messages.cancel()

    async def wait(self, on_event: Optional[Callable[[Event], None]] = None) -> Summary:
        """Its summary; a copy without all of its files raises a ``ProgramError``."""
        try:
            async for event in self:
                if on_event is not None:
                    on_event(event)
            assert self._process is not None
            status = await asyncio.wait_for(self._process.wait(), self._end.within(LONGEST_WAIT))
            return self._record.result(status)
        finally:
            await self.cancel()

    async def cancel(self) -> None:
        """Ends it. Partial files stay, so that the same copy continues them."""
        if self._transport is not None:
            # It may wait for a reader of its events.
            self._transport.close()
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGINT)
            try:
                await asyncio.wait_for(self._process.wait(), _program.END_SECONDS)
            except asyncio.TimeoutError:
                self._process.kill()
                await self._process.wait()

    async def _start(self) -> asyncio.StreamReader:
        if self._process is not None:
            raise RuntimeError("the events of a copy are read once")
        ours, theirs = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command[:2],
                f"--events=/dev/fd/{theirs}",
                *self._command[2:],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env=self._access.environment(),
                pass_fds=[theirs],
                start_new_session=True,
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        reader = asyncio.StreamReader()
        self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb", 0)
        )
        return reader

    async def _hear(self, messages: asyncio.StreamReader) -> None:
        while True:
            part = await messages.read(_PART_BYTES)
            if not part:
                return
            self._record.hear(part)


def start_copy(
    sources: Union[Place, Sequence[Place]],
    destination: Place,
    *,
    access: Access = Access(),
    timeout: float = LONGEST_WAIT,
    **options: Unpack[CopyOptions],
) -> Transfer:
    """``godwit cp``, which starts when its events are read."""
    return Transfer(copy_command(sources, destination, access, options), access, timeout)


def start_sync(
    source: Place,
    destination: Place,
    *,
    access: Access = Access(),
    timeout: float = LONGEST_WAIT,
    **options: Unpack[SyncOptions],
) -> Transfer:
    """``godwit sync``, which starts when its events are read."""
    return Transfer(sync_command(source, destination, access, options), access, timeout)


async def copy(
    sources: Union[Place, Sequence[Place]],
    destination: Place,
    *,
    access: Access = Access(),
    timeout: float = LONGEST_WAIT,
    on_event: Optional[Callable[[Event], None]] = None,
    **options: Unpack[CopyOptions],
) -> Summary:
    """Copies files, or directories with ``recursive=True``, and waits for the end."""
    transfer = start_copy(sources, destination, access=access, timeout=timeout, **options)
    return await transfer.wait(on_event)


async def sync(
    source: Place,
    destination: Place,
    *,
    access: Access = Access(),
    timeout: float = LONGEST_WAIT,
    on_event: Optional[Callable[[Event], None]] = None,
    **options: Unpack[SyncOptions],
) -> Summary:
    """Makes a directory the same as another one, and waits for the end."""
    transfer = start_sync(source, destination, access=access, timeout=timeout, **options)
    return await transfer.wait(on_event)
