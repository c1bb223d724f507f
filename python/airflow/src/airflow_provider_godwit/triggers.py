"""Waits that take no worker."""

from __future__ import annotations

from typing import Any, AsyncIterator, Dict, Tuple

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async
from godwit import GodwitError

from .hooks import GodwitHook


class GodwitJobTrigger(BaseTrigger):
    """Fires when a job has ended, or cannot be waited for."""

    def __init__(self, job: str, timeout: float, godwit_conn_id: str) -> None:
        super().__init__()
        self.job = job
        self.timeout = timeout
        self.godwit_conn_id = godwit_conn_id

    def serialize(self) -> Tuple[str, Dict[str, Any]]:
        """As Airflow stores it."""
        arguments = {
            "job": self.job,
            "timeout": self.timeout,
            "godwit_conn_id": self.godwit_conn_id,
        }
        return "airflow_provider_godwit.triggers.GodwitJobTrigger", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Follows the events of the job."""
        error = None
        try:
            hook = GodwitHook(self.godwit_conn_id)
            async with await sync_to_async(hook.asynchronous_service)() as service:
                job = await service.job(self.job)
                await job.wait(self.timeout, progress=False, check=False)
        except GodwitError as problem:
            error = str(problem)
        yield TriggerEvent({"job": self.job, "error": error})
