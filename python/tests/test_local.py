"""Copies by the local program."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import stat
import time
from pathlib import Path
from typing import Any, List

import pytest

import godwit
from conftest import Server
from godwit import Access, _local_aio, aio, errors, local
from godwit._program import LINE_BYTES_MAX, Record
from godwit.events import Event, File, Other, Plan, Start, Summary


def fake(folder: Path, script: str) -> Access:
    """A program that does what the script says; it has its events in ``$events``."""
    path = folder / "godwit"
    path.write_text(
        "#!/bin/sh\nfor word; do case $word in --events=*) events=${word#--events=};; esac; done\n"
        + script
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return Access(program=path)


SUMMARY = (
    '{"t":1,"event":"summary","bytes":0,"seconds":1,"goodput_bps":0,"files_done":0,'
    '"files_failed":0,"exit":0}'
)


def test_a_copy_is_told_event_by_event(program: Path, source: Server, tmp_path: Path) -> None:
    url = source.write("/local/a b.bin", b"x" * 100_000)
    seen: List[Event] = []
    summary = godwit.copy(url.replace(" ", "%20"), tmp_path / "copy", on_event=seen.append)
    assert summary.bytes == 100_000 and summary.files_done == 1
    kinds = [type(event) for event in seen]
    assert kinds[0] is Start and Plan in kinds and kinds[-1] is Summary
    files = [event for event in seen if isinstance(event, File)]
    assert files[0].state == "verified" and files[0].size == 100_000
    assert (tmp_path / "copy").read_bytes() == b"x" * 100_000


def test_a_failed_file_has_a_code(program: Path, source: Server, tmp_path: Path) -> None:
    source.write("/fails/there", b"x")
    urls = [source.url("/fails/there"), source.url("/fails/absent")]
    folder = tmp_path / "to"
    folder.mkdir()
    with pytest.raises(errors.SomeFailed) as failed:
        godwit.copy(urls, folder)
    error = failed.value
    assert error.exit == 1 and error.summary is not None and error.summary.files_done == 1
    assert [failure.code for failure in error.failures] == ["not_found"]
    assert os.listdir(folder) == ["there"]


def test_a_sync_says_what_differs(program: Path, source: Server, tmp_path: Path) -> None:
    source.write("/sync/a", b"a")
    source.write("/sync/b.log", b"b")
    options: Any = {"exclude": ["*.log"]}
    would = godwit.sync(source.url("/sync"), tmp_path / "s", dry_run=True, **options)
    assert would.files_differing == 1 and not (tmp_path / "s").exists()
    godwit.sync(source.url("/sync"), tmp_path / "s", **options)
    again = godwit.sync(source.url("/sync"), tmp_path / "s", **options)
    assert (again.files_differing, again.files_same) == (0, 1)


def test_a_copy_is_ended_and_continued(program: Path, source: Server, tmp_path: Path) -> None:
    url = source.write("/slow/big", os.urandom(4 << 20))
    with godwit.start_copy(url, tmp_path / "big", max_rate="8M") as transfer:
        assert isinstance(next(iter(transfer)), Start)
    with pytest.raises(errors.Interrupted):
        godwit.copy(url, tmp_path / "big", max_rate="8M", timeout=0.5)
    assert not (tmp_path / "big").exists()
    godwit.copy(url, tmp_path / "big")
    assert (tmp_path / "big").stat().st_size == 4 << 20


def test_asyncio_has_the_same(program: Path, source: Server, tmp_path: Path) -> None:
    url = source.write("/aio/x", b"content")

    async def run() -> None:
        summary = await aio.copy(url, tmp_path / "x")
        assert summary.files_done == 1
        async with aio.start_copy(url, tmp_path / "y") as transfer:
            kinds = [type(event) async for event in transfer]
        assert kinds[0] is Start and kinds[-1] is Summary
        with pytest.raises(errors.WrongUsage):
            await aio.copy(tmp_path / "x", tmp_path / "z")
        slow = source.write("/aio/slow", b"x" * (4 << 20))
        with pytest.raises(errors.Interrupted):
            await aio.copy(slow, tmp_path / "slow", max_rate="8M", timeout=0.5)
        assert (await aio.sync(source.url("/aio"), tmp_path / "s")).files_done == 2

    asyncio.run(run())


def test_both_modules_have_one_shape() -> None:
    for name in ("copy", "sync", "start_copy", "start_sync"):
        ours, theirs = getattr(local, name), getattr(_local_aio, name)
        assert inspect.signature(ours).parameters == inspect.signature(theirs).parameters


def test_arguments_are_words_for_no_shell_and_no_secret_is_among_them(tmp_path: Path) -> None:
    access = fake(tmp_path, f'printf "%s\\n" "$@" >{tmp_path}/said; echo \'{SUMMARY}\' >"$events"')
    access = Access(program=access.program, password="pass word", ca=tmp_path)
    godwit.copy("--help", "; touch x `y` $(z)", verify=False, max_rate=5, access=access)
    said = (tmp_path / "said").read_text()
    assert said.splitlines()[-3:] == ["--", "--help", "; touch x `y` $(z)"]
    assert "--no-verify\n--max-rate=5" in said and f"--ca={tmp_path}" in said
    assert "pass word" not in said + repr(access)


def test_what_makes_no_sense_is_refused_before_a_program_starts(tmp_path: Path) -> None:
    access = Access(program="/bin/false")
    for places in (("ftp://u:secret@h/x", "y"), ("", "y"), ("x\0", "y"), ("-", "y"), ("x", "-")):
        with pytest.raises(ValueError) as refused:
            godwit.copy(*places, access=access)
        assert "secret" not in str(refused.value)
    options: Any = {"password": "x"}
    with pytest.raises(TypeError):
        godwit.copy("x", "y", access=access, **options)
    with pytest.raises(errors.ProgramMissing):
        godwit.copy("x", "y", access=Access(program=tmp_path / "none"))


def test_messages_become_exceptions_without_signs_that_move_a_cursor(tmp_path: Path) -> None:
    script = 'printf "first\\ngodwit: no \\033[2Jtoken\\n" >&2; exit 3'
    with pytest.raises(errors.Denied) as failed:
        godwit.copy("x", "ftp://h/x", access=fake(tmp_path, script))
    assert str(failed.value) == "godwit: first; godwit: no  [2Jtoken"
    with pytest.raises(errors.TransferFailed):
        godwit.copy("x", "ftp://h/x", access=fake(tmp_path, "kill -9 $$"))
    with pytest.raises(errors.TransferFailed):
        godwit.copy("x", "ftp://h/x", access=fake(tmp_path, "exit 0"))


def test_a_program_that_says_much_or_nonsense_is_ended(tmp_path: Path) -> None:
    noisy = "head -c 3000000 /dev/zero | tr '\\0' x >&2; exit 4"
    with pytest.raises(errors.TransferFailed) as failed:
        godwit.copy("x", "ftp://h/x", access=fake(tmp_path, noisy))
    assert len(str(failed.value)) < 70_000
    for script in ("echo '[]' >$events; exec sleep 60", "cat /dev/zero >$events"):
        began = time.monotonic()
        with pytest.raises(errors.BadAnswer):
            godwit.copy("x", "ftp://h/x", access=fake(tmp_path, f"exec 2>/dev/null; {script}"))
        assert time.monotonic() - began < 40


def test_lines_are_bounded_and_unknown_events_are_kept() -> None:
    record = Record()
    line = b'{"t":0,"event":"of_later","x":1}\n' + SUMMARY.encode()
    found = [event for at in range(len(line)) for event in record.feed(line[at : at + 1])]
    assert isinstance(found[0], Other) and found[0].content["x"] == 1 and len(found) == 1
    assert isinstance(next(record.feed(b"\n")), Summary)
    assert record.result(0).exit == 0
    with pytest.raises(errors.BadAnswer):
        list(record.feed(b"x" * (LINE_BYTES_MAX + 1)))
    assert isinstance(Record().error(-signal.SIGKILL), errors.TransferFailed)
