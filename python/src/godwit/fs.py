"""A file system for fsspec: pandas, xarray and dask read from and write to grid servers.

It runs the program ``godwit`` for each operation. ``pip install godwit[fsspec]`` makes fsspec know
it for ``gsiftp``, ``ftpes`` and ``sshftp`` URLs, and for ``godwit+ftp``: for ``ftp`` itself fsspec
and pandas have their own.
"""

from __future__ import annotations

import errno
import os
from datetime import datetime
from typing import Any, Dict, List, Optional, Tuple, Union
from urllib.parse import quote, unquote, urlsplit

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from . import _decode as decode
from ._follow import LONGEST_WAIT
from ._program import Access, Place, Record
from ._run import Writer, output
from .errors import BadAnswer, Interrupted, ProgramError

#: Most bytes of a listing.
_LISTING_BYTES_MAX = 512 << 20

#: Bytes that a file reads ahead: a block is a login and a transfer.
_BLOCK_BYTES = 16 << 20

_KINDS = {"file": "file", "directory": "directory"}


class GodwitFileSystem(AbstractFileSystem):
    """The files of one server, by GridFTP with a grid identity."""

    protocol: Union[str, Tuple[str, ...]] = "gsiftp"
    #: Of URLs that the program is given.
    scheme = "gsiftp"
    root_marker = "/"
    cachable = True

    def __init__(
        self,
        host: str,
        port: Optional[int] = None,
        username: Optional[str] = None,
        password: Optional[str] = None,
        proxy: Optional[str] = None,
        ca: Optional[str] = None,
        token_file: Optional[str] = None,
        protect: Optional[str] = None,
        stall_timeout: float = 60.0,
        timeout: float = LONGEST_WAIT,
        program: Optional[str] = None,
        **storage_options: Any,
    ) -> None:
        super().__init__(**storage_options)
        self.host, self.port, self.username = host, port, username
        self._timeout = timeout
        self._access = Access(proxy, ca, password, token_file, protect, stall_timeout, program)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(item) for item in path]
        text = os.fspath(path)
        if "://" in text:
            text = unquote(urlsplit(text).path, errors="surrogateescape")
        return "/" + text.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(url: str) -> Dict[str, Any]:
        parts = urlsplit(url)
        if parts.password is not None:
            raise ValueError("a URL holds no password: give it as a storage option")
        found: Dict[str, Any] = {"host": parts.hostname}
        if parts.port is not None:
            found["port"] = parts.port
        if parts.username is not None:
            found["username"] = unquote(parts.username)
        return found

    def unstrip_protocol(self, name: str) -> str:
        """The URL of a path."""
        protocol = self.protocol if isinstance(self.protocol, str) else self.protocol[0]
        return protocol + self._url(name)[len(self.scheme) :]

    def _url(self, path: str) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = f"{quote(self.username, safe='')}@" if self.username else ""
        port = f":{self.port}" if self.port is not None else ""
        where = quote(self._strip_protocol(path), safe="/", errors="surrogateescape")
        return f"{self.scheme}://{user}{host}{port}{where}"

    def _run(
        self, verb: str, flags: List[str], places: List[Place], most: int = 0, path: str = ""
    ) -> bytes:
        command = self._access.command(verb, ["--quiet", *flags], places)
        status, found, record = output(command, self._access, most, self._timeout)
        if status != 0:
            raise _os_error(status, record, path, found)
        return found

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> List[Any]:
        """The entries of a directory, or the one of a file."""
        path = self._strip_protocol(path)
        found = self._run("ls", ["--json"], [self._url(path)], _LISTING_BYTES_MAX, path)
        entries = [_entry(line) for line in found.splitlines()]
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **kwargs: Any) -> Dict[str, Any]:
        """Name, type, size and time of a file or directory."""
        path = self._strip_protocol(path)
        found = self._run("stat", ["--json"], [self._url(path)], _LISTING_BYTES_MAX, path)
        return {**_entry(found), "name": path}

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Whether it is there. That a server does not answer is an error."""
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def modified(self, path: str) -> datetime:
        """Time of the last change."""
        found = self.info(path)["mtime"]
        if not isinstance(found, datetime):
            raise NotImplementedError("the server does not say when files were changed")
        return found

    def cat_file(
        self, path: str, start: Optional[int] = None, end: Optional[int] = None, **kwargs: Any
    ) -> bytes:
        """Bytes of a file; ``start`` and ``end`` may count from its end."""
        path = self._strip_protocol(path)
        entry = self.info(path)
        if entry["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        size = entry["size"]
        if size is None:
            raise OSError(errno.EIO, "the server does not say how long files are", path)
        first, past, _ = slice(start, end).indices(size)
        return self._range(path, first, past)

    def _range(self, path: str, start: int, end: int) -> bytes:
        if end <= start:
            return b""
        flags = [f"--offset={start}", f"--length={end - start}", "--no-journal"]
        found = self._run("cp", flags, [self._url(path), "-"], end - start, path)
        if len(found) != end - start:
            raise OSError(errno.EIO, f"{len(found)} bytes came of {end - start}", path)
        return found

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        """Writes a whole file."""
        if mode == "create" and self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        writer = self._writer(path)
        try:
            writer.write(value)
        except BaseException:
            writer.discard()
            raise
        self._finish(writer, path)

    def _writer(self, path: str) -> Writer:
        command = self._access.command("cp", ["--quiet"], ["-", self._url(path)])
        return Writer(command, self._access)

    def _finish(self, writer: Writer, path: str) -> None:
        status, record = writer.finish(self._timeout)
        if status != 0:
            raise _os_error(status, record, path)

    def get_file(self, rpath: str, lpath: Any, **kwargs: Any) -> None:
        """Copies a file to this machine, verified."""
        if self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        self._copy(self._url(rpath), os.path.abspath(lpath), rpath)

    def put_file(self, lpath: Any, rpath: str, **kwargs: Any) -> None:
        """Copies a file of this machine, verified."""
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        self._copy(os.path.abspath(lpath), self._url(rpath), rpath)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copies a file at the server: its bytes do not pass here."""
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        self._copy(self._url(path1), self._url(path2), path1)

    def get_tree(self, path: str, local: Place) -> None:
        """Copies what is in a directory to one of this machine, in one run of the program."""
        self._run("cp", ["-r"], [f"{self._url(path)}/", f"{os.path.abspath(local)}/"], path=path)

    def put_tree(self, local: Place, path: str) -> None:
        """Copies what is in a directory of this machine, in one run of the program."""
        self._run("cp", ["-r"], [f"{os.path.abspath(local)}/", f"{self._url(path)}/"], path=path)

    def _copy(self, source: str, destination: str, path: str) -> None:
        self._run("cp", ["--no-journal"], [source, destination], path=path)

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Makes a directory."""
        path = self._strip_protocol(path)
        if create_parents and self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._run("mkdir", ["-p"] if create_parents else [], [self._url(path)], path=path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Makes a directory and those above it."""
        if exist_ok:
            self._run("mkdir", ["-p"], [self._url(path)], path=path)
        else:
            self.mkdir(path)

    def rm_file(self, path: str) -> None:
        """Removes a file."""
        self._run("rm", [], [self._url(path)], path=path)

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def rmdir(self, path: str) -> None:
        """Not offered: no command of the protocol's removes only what is empty everywhere."""
        raise NotImplementedError("rm(path, recursive=True) removes a directory with its files")

    def rm(self, path: Any, recursive: bool = False, maxdepth: Optional[int] = None) -> None:
        """Removes files, and directories with all below them if ``recursive``."""
        if maxdepth is not None:
            raise NotImplementedError("maxdepth")
        paths = self.expand_path(path, recursive=False)
        flags = ["-r"] if recursive else []
        self._run("rm", flags, [self._url(item) for item in paths], path=str(path))

    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Renames a file or directory."""
        self._run("mv", [], [self._url(path1), self._url(path2)], path=path1)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: Union[int, str, None] = None,
        autocommit: bool = True,
        cache_options: Optional[Dict[str, Any]] = None,
        **kwargs: Any,
    ) -> GodwitFile:
        if mode not in ("rb", "wb", "xb"):
            raise ValueError(f"files are opened to be read or written from scratch, not {mode}")
        if mode == "xb" and self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        size = block_size if isinstance(block_size, int) else _BLOCK_BYTES
        return GodwitFile(
            self, path, mode, size, autocommit=autocommit, cache_options=cache_options, **kwargs
        )


class FtpesFileSystem(GodwitFileSystem):
    """The files of one server, by FTP over TLS."""

    protocol = scheme = "ftpes"


class SshftpFileSystem(GodwitFileSystem):
    """The files of one server, by GridFTP through ssh."""

    protocol = scheme = "sshftp"


class FtpFileSystem(GodwitFileSystem):
    """The files of one server, by FTP in clear."""

    protocol = ("godwit+ftp", "ftp")
    scheme = "ftp"


class GodwitFile(AbstractBufferedFile):
    """An open file.

    One that is written gets its name when it is closed. A ``with`` block that ends by an exception
    leaves nothing of it.
    """

    _written: Optional[Writer] = None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None and self.writable():
            self.closed = True
            self.discard()
        else:
            self.close()

    def _fetch_range(self, start: int, end: int) -> bytes:
        return bytes(self.fs._range(self.path, start, min(end, self.size)))

    def _initiate_upload(self) -> None:
        self._written = self.fs._writer(self.path)

    def _upload_chunk(self, final: bool = False) -> bool:
        assert self._written is not None
        try:
            self._written.write(self.buffer.getvalue())
        except BaseException:
            self.discard()
            raise
        if final and self.autocommit:
            self.commit()
        return True

    def commit(self) -> None:
        """Gives a file of a transaction its name."""
        writer, self._written = self._written, None
        if writer is not None:
            self.fs._finish(writer, self.path)

    def discard(self) -> None:
        """Leaves nothing of a file of a transaction."""
        writer, self._written = self._written, None
        if writer is not None:
            writer.discard()


def _entry(line: bytes) -> Dict[str, Any]:
    source = decode.as_object(decode.parse(line))
    kind = decode.text(source, "type")
    return {
        "name": GodwitFileSystem._strip_protocol(decode.text(source, "url")),
        "size": decode.optional(decode.whole, source, "size"),
        "type": _KINDS.get(kind, "other"),
        "mtime": decode.optional(decode.time, source, "modified"),
    }


def _code(found: bytes) -> str:
    """The code of an error as the last line of JSON."""
    try:
        error = decode.inner(decode.as_object(decode.parse(found.splitlines()[-1])), "error")
        return decode.text(error, "code")
    except (BadAnswer, IndexError):
        return ""


_NUMBERS = {
    "not_found": errno.ENOENT,
    "exists": errno.EEXIST,
    "permission": errno.EACCES,
    "no_space": errno.ENOSPC,
}

#: What messages end with, of commands that print no JSON.
_WORDS = {"no such file or directory": errno.ENOENT, "exists already": errno.EEXIST}


def _os_error(status: int, record: Record, path: str, found: bytes = b"") -> OSError:
    error: ProgramError = record.error(status)
    message = str(error)
    if isinstance(error, Interrupted):
        return TimeoutError(errno.ETIMEDOUT, message, path)
    number = _NUMBERS.get(_code(found))
    for words, meant in _WORDS.items():
        if number is None and words in message:
            number = meant
    if number is None:
        number = errno.EACCES if error.exit == 3 else errno.EIO
    # The number chooses the class: FileNotFoundError, PermissionError ...
    return OSError(number, message, path)
