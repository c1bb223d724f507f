"""Snakemake's storage on GridFTP and FTP servers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterable, List, Optional
from urllib.parse import urlsplit

from godwit.fs import (
    FtpesFileSystem,
    FtpFileSystem,
    GodwitFileSystem,
    SshftpFileSystem,
)
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_storage_plugins.common import Operation
from snakemake_interface_storage_plugins.io import IOCacheStorageInterface, Mtime
from snakemake_interface_storage_plugins.io import get_constant_prefix
from snakemake_interface_storage_plugins.settings import StorageProviderSettingsBase
from snakemake_interface_storage_plugins.storage_object import StorageObjectGlob
from snakemake_interface_storage_plugins.storage_object import StorageObjectRead
from snakemake_interface_storage_plugins.storage_object import StorageObjectWrite
from snakemake_interface_storage_plugins.storage_object import retry_decorator
from snakemake_interface_storage_plugins.storage_provider import ExampleQuery, QueryType
from snakemake_interface_storage_plugins.storage_provider import StorageProviderBase
from snakemake_interface_storage_plugins.storage_provider import StorageQueryValidationResult

_SCHEMES = {
    kind.scheme: kind
    for kind in (GodwitFileSystem, FtpesFileSystem, SshftpFileSystem, FtpFileSystem)
}


def _setting(help: str) -> Any:
    return field(default=None, metadata={"help": help, "env_var": True, "required": False})


@dataclass
class StorageProviderSettings(StorageProviderSettingsBase):
    proxy: Optional[str] = _setting("Proxy certificate, in place of X509_USER_PROXY")
    ca: Optional[str] = _setting("CAs of ftpes servers: a PEM file or a directory")
    password_file: Optional[str] = _setting("File with the password of the user in the URL")
    token_file: Optional[str] = _setting("File with a bearer token")
    program: Optional[str] = _setting("The program godwit, if it is not in the search path")


class StorageProvider(StorageProviderBase):
    def file_system(self, query: str) -> GodwitFileSystem:
        """The server of a query."""
        settings = self.settings or StorageProviderSettings()
        options = {
            name: getattr(settings, name) for name in ("proxy", "ca", "token_file", "program")
        }
        if settings.password_file:
            with open(settings.password_file, encoding="utf-8") as file:
                options["password"] = file.readline().rstrip("\r\n")
        kind = _SCHEMES[urlsplit(query).scheme]
        return kind(**kind._get_kwargs_from_urls(query), **options)

    @classmethod
    def example_queries(cls) -> List[ExampleQuery]:
        return [
            ExampleQuery(
                "gsiftp://grid.example.org/run7/x.root",
                "a file of a GridFTP server, with a grid identity",
                QueryType.ANY,
            ),
            ExampleQuery(
                "ftpes://jo@data.example.org/run7/{sample}.csv",
                "files of an FTP server with TLS",
                QueryType.ANY,
            ),
        ]

    def rate_limiter_key(self, query: str, operation: Operation) -> Any:
        return urlsplit(query).netloc

    def default_max_requests_per_second(self) -> float:
        return 10.0

    def use_rate_limiter(self) -> bool:
        return True

    @classmethod
    def is_valid_query(cls, query: str) -> StorageQueryValidationResult:
        reason = None
        try:
            parts = urlsplit(query)
            if parts.scheme not in _SCHEMES:
                reason = f"its scheme is none of {', '.join(sorted(_SCHEMES))}"
            elif not parts.hostname or not parts.path.strip("/"):
                reason = "it names no host or no file"
            elif parts.password is not None:
                reason = "it holds a password: use the setting password-file"
        except ValueError as error:
            reason = str(error)
        shown = query if reason is None else cls._without_password(query)
        return StorageQueryValidationResult(shown, reason is None, reason)

    @staticmethod
    def _without_password(query: str) -> str:
        scheme, mark, rest = query.partition("://")
        host, slash, path = rest.partition("/")
        return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}"

    def safe_print(self, query: str) -> str:
        return self._without_password(query)


class StorageObject(StorageObjectRead, StorageObjectWrite, StorageObjectGlob):
    provider: StorageProvider

    def __post_init__(self) -> None:
        self._fs = self.provider.file_system(self.query)
        self._path = self._fs._strip_protocol(self.query)

    async def inventory(self, cache: IOCacheStorageInterface) -> None:
        key = self.cache_key()
        if key in cache.exists_in_storage:
            return
        entry = self._entry()
        cache.exists_in_storage[key] = entry is not None
        if entry is not None:
            cache.mtime[key] = Mtime(storage=_seconds(entry))
            cache.size[key] = entry["size"] or 0

    def get_inventory_parent(self) -> Optional[str]:
        return None

    def local_suffix(self) -> str:
        parts = urlsplit(self.query)
        return f"{parts.scheme}/{parts.netloc.rpartition('@')[2]}{self._path}"

    def cleanup(self) -> None:
        pass

    @retry_decorator
    def exists(self) -> bool:
        return self._entry() is not None

    @retry_decorator
    def mtime(self) -> float:
        return _seconds(self._fs.info(self._path))

    @retry_decorator
    def size(self) -> int:
        return self._fs.info(self._path)["size"] or 0

    @retry_decorator
    def retrieve_object(self) -> None:
        if self._fs.isdir(self._path):
            self._fs.get_tree(self._path, self.local_path())
        else:
            self._fs.get_file(self._path, str(self.local_path()))

    @retry_decorator
    def store_object(self) -> None:
        local = self.local_path()
        if local.is_dir():
            self._fs.put_tree(local, self._path)
        else:
            self._fs.makedirs(self._fs._parent(self._path), exist_ok=True)
            self._fs.put_file(str(local), self._path)

    @retry_decorator
    def remove(self) -> None:
        self._fs.rm(self._path, recursive=self._fs.isdir(self._path))

    @retry_decorator
    def list_candidate_matches(self) -> Iterable[str]:
        prefix = get_constant_prefix(self.query, strip_incomplete_parts=True)
        return [self._fs._url(path) for path in self._fs.find(prefix)]

    def _entry(self) -> Optional[dict[str, Any]]:
        try:
            return self._fs.info(self._path)
        except FileNotFoundError:
            return None


def _seconds(entry: dict[str, Any]) -> float:
    if entry["mtime"] is None:
        raise WorkflowError(f"the server does not say when {entry['name']} was changed")
    return float(entry["mtime"].timestamp())
