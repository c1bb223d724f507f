"""godwit: moves large data with GridFTP, by a transfer service or by the local program.

``Service`` submits jobs to a transfer service and follows them; ``copy`` and ``sync`` run the local
program. ``godwit.aio`` has the same for asyncio.
"""

from . import aio, errors, events
from ._program import Access
from ._protocol import Limit
from .errors import GodwitError
from .local import Transfer, copy, start_copy, start_sync, sync
from .model import Class, Copy, Endpoint, FileError, FileOrder, FileState, FileView, JobEvent
from .model import JobOptions, JobState, JobView, Limits, Overwrite, Verify, Why
from .service import Job, Service

__version__ = "0.1.0"

__all__ = [
    "Access",
    "Class",
    "Copy",
    "Endpoint",
    "FileError",
    "FileOrder",
    "FileState",
    "FileView",
    "GodwitError",
    "Job",
    "JobEvent",
    "JobOptions",
    "JobState",
    "JobView",
    "Limit",
    "Limits",
    "Overwrite",
    "Service",
    "Transfer",
    "Verify",
    "Why",
    "aio",
    "copy",
    "errors",
    "events",
    "start_copy",
    "start_sync",
    "sync",
]
