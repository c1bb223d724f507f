"""Copies by the program ``godwit`` of this machine, for programs that wait.

``godwit.aio`` has the same for asyncio.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
from types import TracebackType
from typing import TYPE_CHECKING, Callable, Iterator, List, Optional, Sequence, Type, Union

from . import _program
from ._follow import LONGEST_WAIT, Deadline
from ._program import Access, CopyOptions, Place, Record, SyncOptions
from .errors import Interrupted
from .events import Event, Summary

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: Bytes that are read at a time.
_PART_BYTES = 64 << 10


class Transfer:
    """A running copy: an iterator of its events, which have to be read so that it continues.

    As a context manager it ends the program at its end.
    """

    def __init__(self, command: List[str], access: Access, timeout: float) -> None:
        self._end = Deadline(timeout)
        self._record = Record()
        self._events, theirs = os.pipe()
        try:
            # Not in the terminal's group: Ctrl-C reaches this program, which ends the other.
            self._process = subprocess.Popen(
                [*command[:2], f"--events=/dev/fd/{theirs}", *command[2:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=access.environment(),
                pass_fds=[theirs],
                start_new_session=True,
            )
        except BaseException:
            os.close(self._events)
            raise
        finally:
            os.close(theirs)

    def __enter__(self) -> Transfer:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.cancel()

    def __iter__(self) -> Iterator[Event]:
        messages = self._process.stderr
        assert messages is not None
        waiting = [self._events, messages.fileno()] if self._events >= 0 else []
        while waiting:
            ready = select.select(waiting, [], [], self._end.left)[0]
            if not ready:
                self.cancel()
                raise Interrupted(f"godwit ran longer than {self._end.seconds:g} s", 130)
            for source in ready:
                part = os.read(source, _PART_BYTES)
                if not part:
                    waiting.remove(source)
                elif source == self._events:
                    yield from self._record.feed(part)
                else:
                    self._record.hear(part)
        self._close()

    def wait(self, on_event: Optional[Callable[[Event], None]] = None) -> Summary:
        """Its summary; a copy without all of its files raises a ``ProgramError``."""
        try:
            for event in self:
                if on_event is not None:
                    on_event(event)
            return self._record.result(self._process.wait(self._end.within(LONGEST_WAIT)))
        except subprocess.TimeoutExpired:
            raise Interrupted(f"godwit ran longer than {self._end.seconds:g} s", 130) from None
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Ends it. Partial files stay, so that the same copy continues them."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            # It may wait for a reader of its events.
            self._close()
            try:
                self._process.wait(_program.END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._close()

    def _close(self) -> None:
        if self._events >= 0:
            os.close(self._events)
            self._events = -1
            assert self._process.stderr is not None
            self._process.stderr.close()


def start_copy(
    sources: Union[Place, Sequence[Place]],
    destination: Place,
    *,
    access: Access = Access(),
    timeout: float = LONGEST_WAIT,
    **options: Unpack[CopyOptions],
) -> Transfer:
    """Starts ``godwit cp``."""
    return Transfer(copy_command(sources, destination, access, options), access, timeout)


def start_sync(
    source: Place,
    destination: Place,
    *,
    access: Access = Access(),
    timeout: float = LONGEST_WAIT,
    **options: Unpack[SyncOptions],
) -> Transfer:
    """Starts ``godwit sync``."""
    return Transfer(sync_command(source, destination, access, options), access, timeout)


def copy(
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
    return transfer.wait(on_event)


def sync(
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
    return transfer.wait(on_event)


def copy_command(
    sources: Union[Place, Sequence[Place]], destination: Place, access: Access, options: CopyOptions
) -> List[str]:
    """The command line of a copy."""
    places = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    if any(os.fspath(place) == "-" for place in (*places, destination)):
        raise ValueError("- is no path here")
    flags = _program.flags(options, CopyOptions.__annotations__)
    return access.command("cp", flags, [*places, destination])


def sync_command(
    source: Place, destination: Place, access: Access, options: SyncOptions
) -> List[str]:
    """The command line of a sync."""
    flags = _program.flags(options, SyncOptions.__annotations__)
    return access.command("sync", flags, [source, destination])
