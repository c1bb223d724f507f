"""What goes wrong, by who must act.

Every exception is a ``GodwitError``. What the service refuses is a ``Refused`` with its stable
``code``; the subclasses are groups of codes. No message holds a token or a password.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional, Sequence

if TYPE_CHECKING:
    from .events import File, Summary
    from .model import JobView


class GodwitError(Exception):
    """All errors of this package."""


class ServiceError(GodwitError):
    """A transfer service did not do it."""


class Unreachable(ServiceError):
    """There is no answer, or it broke off."""


class BadAnswer(ServiceError):
    """The answer is not that of a transfer service, or longer than is read."""


@dataclass(frozen=True)
class Problem:
    """What the service says of a refused request (RFC 9457)."""

    status: int
    code: str
    title: str
    detail: str
    #: Where in the request, as a JSON pointer.
    pointer: Optional[str] = None
    #: Seconds after which the same request may succeed.
    retry_after: Optional[int] = None


class Refused(ServiceError):
    """The service answered with an error; ``code`` never changes its meaning."""

    def __init__(self, problem: Problem) -> None:
        where = f" at {problem.pointer}" if problem.pointer else ""
        super().__init__(f"{problem.title}: {problem.detail}{where} ({problem.code})")
        self.problem = problem

    @property
    def code(self) -> str:
        """The stable code, for programs."""
        return self.problem.code

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.problem.status


class InvalidRequest(Refused):
    """The request makes no sense: the caller must change it."""


class Unauthenticated(Refused):
    """The service does not accept the token."""


class Forbidden(Refused):
    """The user may not do this."""


class NotFound(Refused):
    """There is no such job, or the user may not see it."""


class Conflict(Refused):
    """The state of the job does not allow this."""


class KeyReused(Refused):
    """The idempotency key was used for another job."""


class LimitReached(Refused):
    """A limit of the user, or too many requests: it may pass."""


class Unavailable(Refused):
    """The service cannot answer now: it may pass."""


class InternalError(Refused):
    """The service has a bug."""


_BY_CODE = {
    "unauthenticated": Unauthenticated,
    "forbidden": Forbidden,
    "not_found": NotFound,
    "conflict": Conflict,
    "idempotency_key_reused": KeyReused,
    "quota": LimitReached,
    "rate_limit": LimitReached,
    "too_many_logins": LimitReached,
    "database_unavailable": Unavailable,
    "stopping": Unavailable,
    "internal": InternalError,
}

_BY_STATUS = {401: Unauthenticated, 403: Forbidden, 404: NotFound, 409: Conflict, 429: LimitReached}


def refusal(problem: Problem) -> Refused:
    """The exception of a problem: by its code, else by its status."""
    kind = _BY_CODE.get(problem.code) or _BY_STATUS.get(problem.status)
    if kind is None and problem.status in (502, 503, 504):
        kind = Unavailable
    if kind is None and 400 <= problem.status < 500:
        kind = InvalidRequest
    return (kind or Refused)(problem)


class DelegationError(GodwitError):
    """The proxy of the user cannot sign another one."""


class WaitTimeout(GodwitError):
    """The time to wait is over. The job continues."""

    def __init__(self, job: JobView, seconds: float) -> None:
        super().__init__(f"job {job.id} has not ended after {seconds:g} s: it is {job.state.value}")
        self.job = job


class JobFailed(GodwitError):
    """A job ended without all of its files."""

    def __init__(self, job: JobView) -> None:
        errors = ", ".join(f"{count} {code}" for code, count in sorted(job.errors.items()))
        text = f"job {job.id} is {job.state.value}: {job.files.failed} of {job.files.total} failed"
        super().__init__(f"{text} ({errors})" if errors else text)
        self.job = job


class ProgramError(GodwitError):
    """The program ``godwit`` did not do it; ``exit`` is its exit status."""

    def __init__(self, message: str, exit: int) -> None:
        super().__init__(message)
        self.exit = exit
        #: The first files that failed, of a copy.
        self.failures: Sequence[File] = ()
        #: Of a copy that went so far.
        self.summary: Optional[Summary] = None


class ProgramMissing(ProgramError):
    """The program ``godwit`` cannot be started."""


class SomeFailed(ProgramError):
    """Some files failed; the others are complete."""


class WrongUsage(ProgramError):
    """The arguments make no sense, or the source does not exist."""


class Denied(ProgramError):
    """A server refused the identity, or what it may do."""


class TransferFailed(ProgramError):
    """The network, a disk or a server failed."""


class Interrupted(ProgramError):
    """The program was stopped, or ran longer than it may."""


_BY_EXIT = {1: SomeFailed, 2: WrongUsage, 3: Denied, 4: TransferFailed, 130: Interrupted}


def program_error(message: str, exit: int) -> ProgramError:
    """The exception of an exit status."""
    return _BY_EXIT.get(exit, TransferFailed)(message, exit)
