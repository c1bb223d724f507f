"""The scripts and the notebook that come as examples, run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any, Dict, List

import nbformat
import pytest
from nbclient import NotebookClient

from conftest import Running, Server, Site
from godwit import JobOptions

_TREE = Path(__file__).resolve().parents[2]
_SCRIPTS = sorted((_TREE / "packaging" / "examples").glob("*.sh"))


@pytest.mark.parametrize("script", _SCRIPTS, ids=[path.name for path in _SCRIPTS])
def test_scripts_have_no_flaws_that_shellcheck_finds(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True, timeout=30)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", script], check=True, timeout=60)


def test_slurm_starts_agents_that_take_jobs_of_their_label(
    site: Site, running: Running, source: Server, target: Server, program: Path, tmp_path: Path
) -> None:
    data, token = site.token_file.parent, tmp_path / "slurm-3.token"
    running.run("godwit-service", "enroll", "slurm-3", "--to", token, "--data", data)
    environment = {
        **os.environ,
        "GODWIT_SERVICE": site.url,
        "GODWIT_AGENTS": str(tmp_path),
        "SLURM_ARRAY_TASK_ID": "3",
        "SLURM_CLUSTER_NAME": "dragon",
        "SLURM_CPUS_PER_TASK": "2",
    }
    quiet: Dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    script = _TREE / "packaging" / "examples" / "slurm-agents.sh"
    agent = subprocess.Popen([script], env=environment, **quiet)
    try:
        with site.service() as service:
            url = source.write("/slurm", b"content")
            options = JobOptions(labels=["dragon"])
            service.submit(url, target.url("/slurm"), options=options).wait(120, progress=False)
    finally:
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(60) == 0
    assert (target.root / "slurm").read_bytes() == b"content"
    assert (tmp_path / "slurm-3.state").is_dir()


def test_a_pipeline_copies_and_says_what_failed(
    site: Site, source: Server, target: Server, program: Path
) -> None:
    url = source.write("/ci/x", b"content")
    environment = {
        **os.environ,
        "GODWIT_SERVICE": site.url,
        "GODWIT_SERVICE_TOKEN": site.token,
        "GITHUB_RUN_ID": "7",
    }

    def step(*arguments: str) -> "subprocess.CompletedProcess[str]":
        script = _TREE / "packaging" / "examples" / "ci-transfer.sh"
        return subprocess.run(
            [script, *arguments], env=environment, capture_output=True, text=True, timeout=120
        )

    first = step("--verify", url, target.url("/ci-copy"))
    assert first.returncode == 0, first.stderr
    again = step("--verify", url, target.url("/ci-copy"))
    assert again.stdout.splitlines()[0] == first.stdout.splitlines()[0]
    failed = step(source.url("/ci/absent"), target.url("/ci-absent"))
    assert failed.returncode == 4 and "not_found" in failed.stderr
    assert site.token not in first.stdout + first.stderr + failed.stderr


def test_the_notebook_runs(
    site: Site,
    source: Server,
    target: Server,
    program: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source.write("/run7/events.csv", b"n,energy\n" + b"".join(b"%d,2.5\n" % n for n in range(100)))
    monkeypatch.setenv("GODWIT_SERVICE", site.url)
    monkeypatch.setenv("GODWIT_SERVICE_TOKEN", site.token)
    monkeypatch.setenv("SOURCE", f"ftp://{source.address}")
    monkeypatch.setenv("COPY", f"ftp://{target.address}")
    path = _TREE / "python" / "examples" / "transfers.ipynb"
    read: Any = nbformat.read
    notebook = read(str(path), as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": tmp_path}}).execute()
    outputs: List[Any] = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    text = "\n".join(str(out.get("text") or out.get("data")) for out in outputs)
    assert "finished: 1 of 1 files" in text and "250.0" in text
    # Progress replaces one output, and is no list of lines.
    assert text.count("of 1 files") == 1
