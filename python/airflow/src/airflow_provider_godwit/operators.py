"""Tasks that move files."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Dict, Optional, Sequence

from airflow.sdk import BaseOperator
from godwit import Copy, Job, JobOptions, JobState, JobView, errors

from .hooks import GodwitHook
from .triggers import GodwitJobTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context


class GodwitTransferOperator(BaseOperator):
    """Copies a file, or a tree, by a transfer service, and waits for the end.

    :param source: URL of a file, or of a directory with ``recursive``
    :param destination: URL of the copy
    :param files: more copies: dictionaries with ``source``, ``destination`` and, if known,
        ``recursive``, ``bytes``, ``checksum``
    :param options: fields of ``godwit.JobOptions``
    :param timeout: seconds that the task waits
    :param deferrable: the wait takes no worker
    """

    template_fields: Sequence[str] = ("source", "destination", "files", "options")
    ui_color = "#d8e8f0"

    def __init__(
        self,
        *,
        source: Optional[str] = None,
        destination: Optional[str] = None,
        recursive: bool = False,
        files: Sequence[Dict[str, Any]] = (),
        options: Optional[Dict[str, Any]] = None,
        timeout: float = 86_400.0,
        deferrable: bool = False,
        godwit_conn_id: str = GodwitHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.source = source
        self.destination = destination
        self.recursive = recursive
        self.files = files
        self.options = options
        self.timeout = timeout
        self.deferrable = deferrable
        self.godwit_conn_id = godwit_conn_id
        self._job_id: Optional[str] = None

    def execute(self, context: Context) -> Dict[str, Any]:
        """Submits the job, or finds the one of an earlier try, and waits."""
        with GodwitHook(self.godwit_conn_id).service() as service:
            job = service.submit_all(
                self._copies(), options=self._options(), idempotency_key=_key(context)
            )
            self._job_id = job.id
            self.log.info("job %s is %s", job.id, job.state.value)
            if job.state in (JobState.PARTIAL, JobState.FAILED):
                job.retry()
            if self.deferrable and not job.state.is_final:
                self.defer(
                    trigger=GodwitJobTrigger(job.id, self.timeout, self.godwit_conn_id),
                    method_name="resume_with",
                    timeout=timedelta(seconds=self.timeout + 60),
                )
            return self._ended(job)

    def resume_with(self, context: Context, event: Dict[str, Any]) -> Dict[str, Any]:
        """The job has ended, or the trigger has given up."""
        with GodwitHook(self.godwit_conn_id).service() as service:
            job = service.job(event["job"])
            if event["error"] is not None and not job.state.is_final:
                raise errors.GodwitError(event["error"])
            return self._ended(job)

    def on_kill(self) -> None:
        """The task is ended: so is the job."""
        if self._job_id is not None:
            with GodwitHook(self.godwit_conn_id).service() as service:
                service.job(self._job_id).cancel()

    def _ended(self, job: Job) -> Dict[str, Any]:
        view: JobView = job.wait(self.timeout, progress=False)
        return {"job": view.id, "files": view.files.ended, "bytes": view.bytes_done}

    def _copies(self) -> Sequence[Copy]:
        copies = [Copy(**file) for file in self.files]
        if self.source is not None and self.destination is not None:
            copies.append(Copy(self.source, self.destination, recursive=self.recursive))
        return copies

    def _options(self) -> JobOptions:
        known = {item.name for item in fields(JobOptions)}
        given = dict(self.options or {})
        if set(given) - known:
            raise ValueError(f"no options of a job: {sorted(set(given) - known)}")
        return JobOptions(**given)


def _key(context: Context) -> str:
    """The same for all tries of a task."""
    task = context["ti"]
    place = f"{task.dag_id}/{task.task_id}/{task.run_id}/{task.map_index}"
    return "".join(c if "!" <= c <= "~" else "_" for c in f"airflow/{place}")[-255:]
