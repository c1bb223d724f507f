"""What both clients do with httpx."""

from __future__ import annotations

from typing import Any, Dict, Optional

import httpx

from ._follow import Deadline
from ._protocol import ANSWER_BYTES_MAX, Answer, Limit, Request, problem_of
from ._settings import PathLike, Target, authorities
from .errors import BadAnswer, ServiceError, Unreachable, refusal

_USER_AGENT = "godwit-python/0.1"


def arguments(
    target: Target, limit: Limit, ca: Optional[PathLike], has_transport: bool
) -> Dict[str, Any]:
    """Of ``httpx.Client`` and ``httpx.AsyncClient``."""
    headers = {"accept-encoding": "identity", "user-agent": _USER_AGENT}
    if target.token is not None:
        headers["authorization"] = f"Bearer {target.token}"
    is_tls = target.url.startswith("https:") and not has_transport
    return {
        "base_url": target.url,
        "headers": headers,
        "timeout": _timeout(limit, limit.read),
        # The token goes to the service alone.
        "follow_redirects": False,
        # A proxy of the environment is for other machines.
        "trust_env": not target.is_local,
        "verify": authorities(ca) if is_tls else False,
    }


def _timeout(limit: Limit, read: float) -> httpx.Timeout:
    return httpx.Timeout(connect=limit.connect, read=read, write=limit.read, pool=limit.connect)


def parts(request: Request, limit: Limit, read: float) -> Dict[str, Any]:
    """Of ``build_request``."""
    return {
        "method": request.method,
        "url": request.path,
        "headers": dict(request.headers),
        "content": request.content,
        "timeout": _timeout(limit, read),
    }


def is_unsent(error: httpx.TransportError) -> bool:
    """The service has not seen the request."""
    return isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))


def check_encoding(answer: httpx.Response) -> None:
    """A short answer that unpacks to a long one is not read."""
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise BadAnswer("the answer is compressed, which was not asked for")


class Body:
    """A body while it comes in, within limits."""

    def __init__(self, end: Deadline) -> None:
        self._end = end
        self._bytes = bytearray()

    def add(self, part: bytes) -> None:
        """The next part."""
        if len(self._bytes) + len(part) > ANSWER_BYTES_MAX:
            raise BadAnswer(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
        if self._end.is_over:
            raise Unreachable(f"the answer takes longer than {self._end.seconds:g} s")
        self._bytes += part

    def content(self) -> bytes:
        """All of it."""
        return bytes(self._bytes)


def answer_of(answer: httpx.Response, body: Body) -> Answer:
    """What the rules of the API look at."""
    return Answer(answer.status_code, body.content(), answer.headers.get("retry-after"))


def stream_error(answer: Answer) -> ServiceError:
    """Why there is no stream. What may pass is as a stream that was lost."""
    error = refusal(problem_of(answer))
    if answer.status in (429, 502, 503, 504):
        return Unreachable(str(error))
    return error
