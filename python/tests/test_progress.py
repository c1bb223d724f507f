"""What people see of a job while they wait."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, List

import pytest

from godwit.model import JobView
from godwit.progress import Notebook, Terminal, chosen, line, size
from test_client import view


def job(**changes: Any) -> JobView:
    return JobView.from_json(view(**changes))


def test_a_line_says_how_far_it_is_and_why_it_waits() -> None:
    files = {"total": 4, "finished": 1, "skipped": 1, "failed": 1, "canceled": 0}
    text = line(
        job(
            files=files,
            listed=False,
            bytes_done=1536,
            bytes_total=5 << 30,
            goodput=2.5e6,
            eta_seconds=9,
            why=[{"code": "agents_busy", "text": "no slot\x1b[2J\nis free"}],
        )
    )
    assert text == (
        "active: 3 of 4+ files, 1.50 KiB of 5.00 GiB, 2.5 MB/s, 9 s left, 1 failed"
        " (no slot [2J is free)"
    )
    assert size(2**60) == "1024.00 PiB"


def test_a_terminal_keeps_one_line() -> None:
    out = io.StringIO()
    show = Terminal(out, width=10)
    show(job())
    show(job(state="finished"))
    assert out.getvalue() == "\r\x1b[Kactive: 0 \r\x1b[Kfinished: \n"


def test_a_terminal_is_found_where_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb", 0) as seen, os.fdopen(theirs, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        chosen(True)(job(state="finished"))
        assert b"finished: 0 of 0 files" in seen.read(1000)


def test_a_notebook_keeps_one_output() -> None:
    shown: List[Any] = []

    class Handle:
        def update(self, content: Any, raw: bool) -> None:
            shown.append(("update", content["text/plain"], raw))

    def display(content: Any, raw: bool, display_id: bool) -> Handle:
        shown.append(("new", content["text/plain"], raw, display_id))
        return Handle()

    show = Notebook(display)
    show(job())
    show(job(state="finished"))
    assert [what[0] for what in shown] == ["new", "update"]


def test_nothing_is_shown_where_no_terminal_is() -> None:
    chosen(True)(job())
    seen: List[JobView] = []
    chosen(seen.append)(job())
    assert len(seen) == 1
