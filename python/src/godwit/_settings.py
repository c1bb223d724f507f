"""Which service, and what logs in there: as ``godwit submit`` finds them."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Mapping, Optional, Union
from urllib.parse import urlsplit

DEFAULT_URL = "http://127.0.0.1:8447"

#: Most bytes of a token.
_TOKEN_BYTES_MAX = 64 << 10

PathLike = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Target:
    """A service, and the token for it."""

    url: str
    token: Optional[str] = field(repr=False)
    is_local: bool


def _is_loopback(host: Optional[str]) -> bool:
    return host in ("127.0.0.1", "::1", "localhost")


def _first_line(path: Path) -> str:
    with open(path, "rb") as file:
        line = file.readline(_TOKEN_BYTES_MAX)
    return line.decode("ascii", "replace").strip()


def _own_token(environment: Mapping[str, str]) -> Optional[str]:
    """The token that ``godwit-service serve`` stored for this user."""
    state = environment.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    path = Path(state) / "godwit" / "service" / "token"
    return _first_line(path) if path.exists() else None


def target(
    url: Optional[str],
    token: Optional[str],
    token_file: Optional[PathLike],
    allow_plain_http: bool,
    environment: Mapping[str, str] = os.environ,
) -> Target:
    """The service of the arguments, else of the environment, else the one of this machine."""
    if token is not None and token_file is not None:
        raise ValueError("give a token or a token_file, not both")
    url = url or environment.get("GODWIT_SERVICE") or None
    if token_file is not None:
        token = _first_line(Path(token_file))
    elif token is None:
        token = environment.get("GODWIT_SERVICE_TOKEN") or None
        # The token of this machine's service is for that service alone.
        if token is None and url is None:
            token = _own_token(environment)
    if token is not None and (not token.isascii() or not token.isprintable() or " " in token):
        raise ValueError("the token has characters that no token has")
    url = (url or DEFAULT_URL).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the URL of a service begins with https:// or http://, and has a host")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError("the URL of a service is https://host:port: the token is an argument")
    is_local = _is_loopback(parts.hostname)
    if parts.scheme == "http" and not is_local and token and not allow_plain_http:
        raise ValueError("a token goes to other machines by https only, unless allow_plain_http")
    return Target(url, token, is_local)


def authorities(ca: Optional[PathLike]) -> ssl.SSLContext:
    """Trust: the CAs of a PEM file in place of the system's."""
    return ssl.create_default_context(cafile=None if ca is None else os.fspath(ca))
