"""Command lines of the program ``godwit``: how it is found and started, and what it says."""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, TypedDict, Union
from urllib.parse import urlsplit

from ._settings import PathLike
from .errors import BadAnswer, ProgramError, ProgramMissing, program_error
from .events import Event, File, Summary, event_from_line

#: Bytes of its messages that are kept for an error.
MESSAGE_BYTES_MAX = 64 << 10

#: Most bytes of an event. The first one has the command line.
LINE_BYTES_MAX = 8 << 20

#: Failed files that an exception lists.
FAILURES_MAX = 100

#: Seconds that it has to end by itself after a signal.
END_SECONDS = 30.0

#: Where files are: a URL or a local path.
Place = Union[str, "os.PathLike[str]"]


class TransferOptions(TypedDict, total=False):
    """Flags of ``godwit cp`` and ``godwit sync``; ``godwit cp --help`` explains them."""

    verify: Union[bool, str]
    parallelism: int
    concurrency: int
    pipelining: int
    max_channels: int
    tuner: str
    max_rate: Union[int, str]
    weight: float
    retries: int
    journal: PathLike
    no_journal: bool
    durability: str


class CopyOptions(TransferOptions, total=False):
    """Flags of ``godwit cp``."""

    recursive: bool
    preserve: Union[bool, str]
    offset: int
    length: int


class SyncOptions(TransferOptions, total=False):
    """Flags of ``godwit sync``."""

    dry_run: bool
    ignore_existing: bool
    size_only: bool
    checksum: bool
    exclude: Sequence[str]
    include: Sequence[str]
    delete: bool
    max_delete: int


@dataclass(frozen=True)
class Access:
    """How the program logs in. Secrets reach it by files or its environment, never by arguments."""

    #: Proxy certificate of ``gsiftp`` URLs.
    proxy: Optional[PathLike] = None
    #: CAs of ``ftpes`` URLs: a PEM file, or a directory.
    ca: Optional[PathLike] = None
    #: Password of the user that the URL names.
    password: Optional[str] = field(default=None, repr=False)
    #: File with a bearer token.
    token_file: Optional[PathLike] = None
    #: ``clear``, ``identity``, ``integrity`` or ``private``.
    protect: Optional[str] = None
    #: Seconds without a reply or a byte after which a connection fails.
    stall_timeout: float = 60.0
    #: The program; without it that of ``GODWIT_PROGRAM``, else ``godwit`` of the search path.
    program: Optional[PathLike] = None

    def command(self, verb: str, flags: Sequence[str], places: Sequence[Place]) -> List[str]:
        """Arguments. No shell reads them, and no path is taken for a flag."""
        command = [_find(self.program), verb, f"--stall-timeout={self.stall_timeout:g}"]
        for name, value in (
            ("protect", self.protect),
            ("ca", self.ca),
            ("proxy", self.proxy),
            ("token", self.token_file),
        ):
            if value is not None:
                command.append(f"--{name}={os.fspath(value)}")
        return [*command, *flags, "--", *map(checked, places)]

    def environment(self) -> Dict[str, str]:
        """The caller's, and the password."""
        environment = dict(os.environ)
        if self.password is not None:
            environment["GODWIT_PASSWORD"] = self.password
        return environment


def checked(place: Place) -> str:
    """A path or URL that may be an argument, which other users of the machine see."""
    text = os.fspath(place)
    if not text or "\0" in text:
        raise ValueError("a path is not empty, and has no NUL")
    if "://" in text and urlsplit(text).password is not None:
        raise ValueError("a URL holds no password: give it as Access(password=...)")
    return text


def _find(program: Optional[PathLike]) -> str:
    wanted = os.fspath(program or os.environ.get("GODWIT_PROGRAM") or "godwit")
    found = shutil.which(wanted)
    if found is None:
        raise ProgramMissing(f"there is no program {wanted}: install it, or set GODWIT_PROGRAM", 2)
    return found


def flags(options: Mapping[str, Any], known: Mapping[str, Any]) -> List[str]:
    """Flags of the options that are set."""
    made = ["--quiet"]
    for name, value in options.items():
        if name not in known:
            raise TypeError(f"there is no option {name}")
        flag = "--" + name.replace("_", "-")
        if name == "verify" and value is False:
            made.append("--no-verify")
        elif value is True:
            made.append(flag)
        elif isinstance(value, (list, tuple)):
            made.extend(f"{flag}={item}" for item in value)
        elif value is not None and value is not False:
            made.append(f"{flag}={os.fspath(value) if hasattr(value, '__fspath__') else value}")
    return made


def last_words(messages: bytes) -> str:
    """What it said last, without signs that move a cursor."""
    text = messages[-MESSAGE_BYTES_MAX:].decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = "; ".join(lines[-5:])
    return "".join(c if c.isprintable() else " " for c in last) or "it gave no reason"


class Record:
    """What a run has said: its events from bytes, and how it ended."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._messages = bytearray()
        self._failures: List[File] = []
        self._summary: Optional[Summary] = None

    def feed(self, part: bytes) -> Iterator[Event]:
        """The events that end in this part."""
        *lines, rest = part.split(b"\n")
        for line in lines:
            whole = bytes(self._rest) + line
            self._rest.clear()
            event = event_from_line(whole)
            if isinstance(event, Summary):
                self._summary = event
            if isinstance(event, File) and event.state == "failed":
                self._failures.extend([event][: FAILURES_MAX - len(self._failures)])
            yield event
        self._rest += rest
        if len(self._rest) > LINE_BYTES_MAX:
            raise BadAnswer(f"an event of more than {LINE_BYTES_MAX} bytes")

    def hear(self, part: bytes) -> None:
        """A part of its messages."""
        self._messages += part
        del self._messages[:-MESSAGE_BYTES_MAX]

    def result(self, status: int) -> Summary:
        """The summary; raises what its exit status means."""
        if status == 0 and self._summary is not None:
            return self._summary
        raise self.error(status)

    def error(self, status: int) -> ProgramError:
        """What its exit status means."""
        words = last_words(bytes(self._messages))
        if status < 0:
            status, words = 4, f"a signal ended the program ({signal.strsignal(-status)})"
        error = program_error(f"godwit: {words}".replace("godwit: godwit: ", "godwit: "), status)
        error.failures, error.summary = tuple(self._failures), self._summary
        return error
