"""godwit: moves large data with GridFTP, by a transfer service or by the local program.

``Service`` submits jobs to a transfer service and follows them (``godwit.aio`` for asyncio).
"""

from . import aio, errors
from ._protocol import Limit
from .errors import GodwitError
from .model import Class, Copy, Endpoint, FileError, FileState, FileView, JobEvent, JobOptions
from .model import JobState, JobView, Limits, Overwrite, Verify, Why
from .service import Job, Service

__version__ = "0.1.0"

__all__ = [
    "Class",
    "Copy",
    "Endpoint",
    "FileError",
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
    "Verify",
    "Why",
    "aio",
    "errors",
]
