"""A flow of real Airflow tasks, with a service, an agent and servers of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

pytest.importorskip("airflow")

_PROGRAMS = Path(os.environ.get("GODWIT_PROGRAMS") or Path(__file__).parents[3] / "target/debug")

_FLOW = """
import os
from airflow.sdk import DAG
from airflow_provider_godwit.operators import GodwitTransferOperator

source, target = os.environ["SOURCE"], os.environ["TARGET"]
with DAG("flow"):
    first = GodwitTransferOperator(
        task_id="first",
        source=source + "/x",
        destination=target + "/x",
        options={"verify": "checksum", "name": "{{ run_id }}"},
    )
    second = GodwitTransferOperator(
        task_id="second",
        files=[{"source": target + "/x", "destination": target + "/y"}],
        deferrable=True,
    )
    first >> second
"""

_TRIES = """
import sys
from airflow_provider_godwit import get_provider_info
from airflow_provider_godwit.hooks import GodwitHook
from airflow_provider_godwit.operators import GodwitTransferOperator
from godwit import errors
from types import SimpleNamespace
from pathlib import Path

source, target, root = sys.argv[1:]
context = {
    "ti": SimpleNamespace(dag_id="d", task_id="t", run_id="manual run", map_index=-1)
}
def task(**more):
    return GodwitTransferOperator(
        task_id="t", source=source + "/late", destination=target + "/late", **more
    )
try:
    task().execute(context)
    raise SystemExit("a missing file is a failure")
except errors.JobFailed as failed:
    first = failed.job.id
(Path(root) / "late").write_text("content")
again = task().execute(context)
assert again == {"job": first, "files": 1, "bytes": 7}, again
try:
    task(options={"verfy": "size"}).execute(context)
    raise SystemExit("an unknown option is a failure")
except ValueError:
    pass
killed = GodwitTransferOperator(
    task_id="k", source=source + "/x", destination=target + "/k", options={"paused": True}
)
with GodwitHook().service() as service:
    job = service.submit(source + "/x", target + "/k", options=killed._options())
    killed._job_id = job.id
    killed.on_kill()
    assert job.refresh().state.value == "canceled"
is_known, text = GodwitHook().test_connection()
assert is_known, text
assert get_provider_info()["connection-types"][0]["connection-type"] == "godwit"
print("tries: done")
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dict[str, Any]]:
    folder = tmp_path_factory.mktemp("airflow")
    started: List[subprocess.Popen[str]] = []

    def start(*command: Any, says: str) -> str:
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return next(line for line in process.stdout if line.startswith(says))[len(says) :].strip()

    def serve(root: Path) -> str:
        root.mkdir()
        flags = ["--root", root, "--anonymous", "rw", "--listen", "127.0.0.1:0"]
        return "ftp://" + start(_PROGRAMS / "godwitd", *flags, says="listening on ")

    try:
        source, target = serve(folder / "source"), serve(folder / "target")
        data = ["--data", folder / "data", "--listen", "127.0.0.1:0"]
        url = "http://" + start(_PROGRAMS / "godwit-service", "serve", *data, says="http://")
        connection = {
            "conn_type": "godwit",
            "host": url,
            "password": (folder / "data" / "token").read_text().strip(),
        }
        environment = {
            **os.environ,
            "AIRFLOW_HOME": str(folder / "home"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
            "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
            "AIRFLOW_CONN_GODWIT_DEFAULT": json.dumps(connection),
        }
        (folder / "dags").mkdir()
        yield {"source": source, "target": target, "folder": folder, "environment": environment}
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(60)


def run(place: Dict[str, Any], *arguments: Any) -> str:
    ran = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**place["environment"], "SOURCE": place["source"], "TARGET": place["target"]},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def test_tries_of_a_task_go_on_with_one_job(place: Dict[str, Any]) -> None:
    root = place["folder"] / "source"
    (root / "x").write_text("x" * 1000)
    script = place["folder"] / "tries.py"
    script.write_text(_TRIES)
    assert "tries: done" in run(place, script, place["source"], place["target"], root)


def test_a_flow_moves_bytes(place: Dict[str, Any]) -> None:
    (place["folder"] / "source" / "x").write_text("x" * 1000)
    (place["folder"] / "dags" / "flow.py").write_text(_FLOW)
    for command in (("db", "migrate"), ("dags", "reserialize"), ("dags", "test", "flow")):
        said = run(place, "-m", "airflow", *command)
    assert "state=success" in said or "SUCCESS" in said, said
    assert (place["folder"] / "target" / "y").read_text() == "x" * 1000
