"""Jobs of real services, moved by real agents between real servers."""

from __future__ import annotations

import asyncio
import os
import uuid
from typing import List

import pytest

import godwit
from conftest import Server, Site
from godwit import Copy, FileState, JobOptions, JobState, JobView, Overwrite, Verify, aio, errors
from godwit.model import JobEvent, Progress, StateChanged


def name() -> str:
    return f"/{uuid.uuid4().hex}"


def test_a_job_moves_bytes_and_shows_how_far_it_is(
    site: Site, source: Server, target: Server
) -> None:
    content, path = os.urandom(3 << 20), name()
    shown: List[JobView] = []
    with site.service() as service:
        job = service.submit(
            source.write(path, content),
            target.url(path),
            options=JobOptions(name="three lines", verify=Verify.CHECKSUM),
        )
        view = job.wait(120, progress=shown.append)
        assert view.state is JobState.FINISHED and view.files.finished == 1
        assert view.name == "three lines" and view.bytes_done == len(content)
        files = list(job.files())
        assert [file.bytes for file in files] == [len(content)]
        assert files[0].checksum is not None and files[0].state is FileState.FINISHED
        assert job.id in [listed.id for listed in service.jobs([JobState.FINISHED], most=5)]
        assert service.job(job.id).state is JobState.FINISHED
    assert shown[-1].state is JobState.FINISHED
    assert (target.root / path[1:]).read_bytes() == content


def test_events_continue_after_the_last_one_that_was_seen(
    site: Site, source: Server, target: Server
) -> None:
    path = name()
    with site.service() as service:
        job = service.submit(source.write(path, b"content"), target.url(path))
        events = list(job.events(timeout=120))
        states = [event.state for event in events if isinstance(event, StateChanged)]
        assert states[-1] is JobState.FINISHED
        assert any(isinstance(event, Progress) for event in events)
        kept = [event for event in events if event.id is not None]
        again = [event for event in job.events(kept[0].id, 120) if event.id is not None]
        assert again == kept[1:]


def test_a_failed_file_is_told_and_tried_again(site: Site, source: Server, target: Server) -> None:
    path = name()
    source.write(path, b"old")
    with site.service() as service:
        job = service.submit(source.url(path + "x"), target.url(path))
        with pytest.raises(errors.JobFailed) as failed:
            job.wait(120, progress=False)
        assert failed.value.job.errors == {"not_found": 1}
        error = next(job.files(FileState.FAILED)).error
        assert error is not None and error.code == "not_found" and not error.may_pass
        source.write(path + "x", b"new")
        job.retry()
        assert job.wait(120, progress=False).state is JobState.FINISHED
    assert (target.root / path[1:]).read_bytes() == b"new"


def test_a_paused_job_is_resumed_renamed_and_canceled(
    site: Site, source: Server, target: Server
) -> None:
    path = name()
    with site.service() as service:
        url = source.write(path, b"content")
        job = service.submit(url, target.url(path), options=JobOptions(paused=True))
        assert job.state is JobState.PAUSED and job.view.why[0].code == "paused"
        with pytest.raises(errors.WaitTimeout):
            job.wait(0.2, progress=False)
        assert job.change(name="other", priority=5).name == "other"
        assert not job.resume().state.is_final
        job.wait(120, progress=False)
        with pytest.raises(errors.Conflict):
            job.pause()
        other = service.submit(url, target.url(path), options=JobOptions(paused=True))
        assert other.cancel().state is JobState.CANCELED
        assert other.wait(60, progress=False, check=False).state is JobState.CANCELED


def test_the_same_key_gives_the_same_job(site: Site, source: Server, target: Server) -> None:
    path = name()
    url = source.write(path, b"content")
    with site.service() as service:
        key = uuid.uuid4().hex
        first = service.submit(url, target.url(path), idempotency_key=key)
        assert service.submit(url, target.url(path), idempotency_key=key).id == first.id
        with pytest.raises(errors.KeyReused):
            service.submit(url, target.url(path + "x"), idempotency_key=key)


def test_refusals_are_exceptions_by_code(site: Site, target: Server) -> None:
    with site.service() as service:
        with pytest.raises(errors.NotFound):
            service.job(uuid.uuid4())
        with pytest.raises(errors.InvalidRequest) as refused:
            service.submit("ftp://u:secret@h/x", target.url("/x"))
        assert refused.value.code == "credentials_in_url" and "secret" not in str(refused.value)
        with pytest.raises(errors.InvalidRequest):
            service.submit_all([])
        service.set_endpoint("ftp://closed.example.org", "banned", godwit.Limits(sessions=3))
        known = {endpoint.name: endpoint for endpoint in service.endpoints()}
        assert known["ftp://closed.example.org"].state == "banned"
        assert known["ftp://closed.example.org"].limits.sessions == 3
    with godwit.Service(site.url, "gwt_wrong") as stranger:
        with pytest.raises(errors.Unauthenticated):
            stranger.user_name()


def test_long_lists_are_sent_as_lines(site: Site, target: Server) -> None:
    options = JobOptions(paused=True)
    many = (Copy(f"ftp://a.example.org/{n}", target.url(f"/many/{n}")) for n in range(10_001))
    with site.service() as service:
        job = service.submit_all(many, options=options)
        assert job.view.files.total == 10_001
        assert sum(1 for _ in job.files()) == 10_001
        job.cancel()


def test_asyncio_has_the_same(site: Site, source: Server, target: Server) -> None:
    path = name()
    url = source.write(path, b"content")

    async def moved() -> List[JobEvent]:
        async with aio.Service(site.url, token_file=site.token_file) as service:
            options = JobOptions(overwrite=Overwrite.ALWAYS)
            job = await service.submit(url, target.url(path), options=options)
            events = [event async for event in job.events(timeout=120)]
            view = await job.wait(120, progress=False)
            assert view.state is JobState.FINISHED
            assert [file.state async for file in job.files()] == [FileState.FINISHED]
            assert job.id in [other.id async for other in service.jobs(most=3)]
            many = (Copy(f"ftp://a/{n}", target.url(f"/m/{n}")) for n in range(10_001))
            long = await service.submit_all(many, options=JobOptions(dry_run=True))
            assert long.view.files.total == 10_001
            return events

    assert any(isinstance(event, StateChanged) for event in asyncio.run(moved()))
