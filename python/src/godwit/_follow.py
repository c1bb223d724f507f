"""Following the events of a job over connections that break, without I/O."""

from __future__ import annotations

import time
from typing import Optional

from ._protocol import RECONNECT_PAUSE, RECONNECTS_MAX, Request, events
from ._sse import Message
from .errors import Unreachable
from .model import JobEvent, JobView, StateChanged

#: Seconds: no wait of this package is longer, unless its caller says so.
LONGEST_WAIT = 7 * 86400.0

#: Seconds between two looks at a job while it is waited for.
LOOK_PAUSE = 1.0


class Deadline:
    """A time until which something is waited for."""

    def __init__(self, seconds: float) -> None:
        if not 0 <= seconds < float("inf"):
            raise ValueError("a time to wait is 0 or more, and has an end")
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until then."""
        return max(0.0, self._end - time.monotonic())

    @property
    def is_over(self) -> bool:
        """It has passed."""
        return self.left <= 0

    def within(self, seconds: float) -> float:
        """So many seconds, but not beyond the deadline; never 0, which would mean no limit."""
        return max(0.001, min(seconds, self.left))


class Follower:
    """Where a reader of events is, across streams."""

    def __init__(self, id: str, after: Optional[str]) -> None:
        self._id = id
        self._last = after
        self._failures = 0
        self._is_state_final = False
        self._was_final = False

    def request(self) -> Request:
        """The next stream."""
        return events(self._id, self._last)

    def take(self, message: Message) -> JobEvent:
        """An event of it."""
        event = message.event()
        self._failures = 0
        if message.id is not None:
            self._last = message.id
        if isinstance(event, StateChanged):
            self._is_state_final = event.state.is_final
        return event

    def is_done(self, view: JobView) -> bool:
        """A stream ended by itself: whether all events have come."""
        if view.state.is_final and (self._is_state_final or self._was_final):
            return True
        # The events of the end may have come after this stream.
        self._was_final = view.state.is_final
        return False

    def pause(self, why: Exception) -> float:
        """Seconds until the next stream; raises after too many that brought nothing."""
        self._failures += 1
        if self._failures > RECONNECTS_MAX:
            raise Unreachable(f"the events of the job cannot be read: {why}") from why
        return RECONNECT_PAUSE
