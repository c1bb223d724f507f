"""How far a job is: one line in a terminal, one output of a cell in a notebook."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, Callable, Optional, TextIO, Union

from .model import JobView

#: Called with a job at most once a second, and when it has ended.
Show = Callable[[JobView], None]

#: ``True``: as fits where the program runs; ``False``: not at all.
Shown = Union[bool, Show]


def line(view: JobView) -> str:
    """What a job is doing, in a line."""
    total = f"{view.files.total}{'' if view.listed else '+'}"
    parts = [
        f"{view.state.value}: {view.files.ended} of {total} files",
        f"{size(view.bytes_done)} of {size(view.bytes_total)}",
    ]
    if view.goodput > 0:
        parts.append(f"{view.goodput / 1e6:.1f} MB/s")
    if view.eta_seconds is not None and not view.state.is_final:
        parts.append(f"{view.eta_seconds} s left")
    if view.files.failed:
        parts.append(f"{view.files.failed} failed")
    text = ", ".join(parts)
    why = f" ({view.why[0].text})" if view.why else ""
    # Text of others must not move the cursor.
    return "".join(c if c.isprintable() else " " for c in text + why)


def size(count: int) -> str:
    """Bytes, for people."""
    amount, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while amount >= 1024 and len(units) > 1:
        amount /= 1024
        units.pop(0)
    return f"{amount:.0f} B" if units[0] == "B" else f"{amount:.2f} {units[0]}"


class Terminal:
    """Writes over its own line."""

    def __init__(self, out: TextIO, width: int = 100) -> None:
        self._out = out
        self._width = width

    def __call__(self, view: JobView) -> None:
        end = "\n" if view.state.is_final else ""
        self._out.write(f"\r\x1b[K{line(view)[: self._width]}{end}")
        self._out.flush()


class Notebook:
    """Replaces its own output of a cell."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self._display = display
        self._handle: Any = None

    def __call__(self, view: JobView) -> None:
        content = {"text/plain": line(view)}
        if self._handle is None:
            self._handle = self._display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


def _notebook() -> Optional[Notebook]:
    """Where this runs in a notebook, which has loaded IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    return Notebook(import_module("IPython.display").display)


def _nothing(view: JobView) -> None:
    del view


def chosen(progress: Shown) -> Show:
    """What shows it."""
    if callable(progress):
        return progress
    if not progress:
        return _nothing
    notebook = _notebook()
    if notebook is not None:
        return notebook
    return Terminal(sys.stderr) if sys.stderr.isatty() else _nothing
