"""Runs the program ``godwit`` for its output, for ``godwit.fs``."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
from typing import List, Tuple

from . import _program
from ._follow import Deadline
from ._program import Access, Record
from .errors import BadAnswer, Interrupted

_PART_BYTES = 1 << 20


def output(
    command: List[str], access: Access, most: int, timeout: float
) -> Tuple[int, bytes, Record]:
    """Its exit status, at most so many bytes of output, and its messages."""
    end, record, found = Deadline(timeout), Record(), bytearray()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=access.environment(),
        start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        with process.stdout, process.stderr:
            out, waiting = process.stdout.fileno(), [process.stdout, process.stderr]
            while waiting:
                ready = select.select(waiting, [], [], end.left)[0]
                if not ready:
                    raise Interrupted(f"godwit ran longer than {end.seconds:g} s", 130)
                for source in ready:
                    part = os.read(source.fileno(), _PART_BYTES)
                    if not part:
                        waiting.remove(source)
                    elif source.fileno() != out:
                        record.hear(part)
                    elif len(found) + len(part) > most:
                        raise BadAnswer(f"the program says more than {most} bytes")
                    else:
                        found += part
            return process.wait(end.within(_program.END_SECONDS)), bytes(found), record
    except subprocess.TimeoutExpired:
        raise Interrupted(f"godwit ran longer than {end.seconds:g} s", 130) from None
    finally:
        _finish(process)


class Writer:
    """A file at a server while it is written. It gets its name when it is complete."""

    def __init__(self, command: List[str], access: Access) -> None:
        self._messages = tempfile.TemporaryFile()
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._messages,
                env=access.environment(),
                start_new_session=True,
            )
        except BaseException:
            self._messages.close()
            raise

    def write(self, part: bytes) -> None:
        """More of it. That the program has ended is said at the end."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(part)
        except BrokenPipeError:
            pass

    def finish(self, timeout: float) -> Tuple[int, Record]:
        """It is complete: the exit status, and the messages."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Interrupted(f"godwit ran longer than {timeout:g} s", 130) from None
        finally:
            _finish(self._process)
        record = Record()
        with self._messages as messages:
            messages.seek(0)
            record.hear(messages.read(_program.MESSAGE_BYTES_MAX))
        return status, record

    def discard(self) -> None:
        """It is not wanted: no file of its name appears."""
        # Before its input ends, which would make the file complete.
        self._process.send_signal(signal.SIGINT)
        _finish(self._process)
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        self._messages.close()


def _finish(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_program.END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
