"""Snakemake's own tests of storage plug-ins, and a workflow, on a server of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Iterator, Optional, Type

import pytest

pytest.importorskip("snakemake_interface_storage_plugins")

from snakemake_interface_storage_plugins.settings import StorageProviderSettingsBase
from snakemake_interface_storage_plugins.storage_provider import StorageProviderBase
from snakemake_interface_storage_plugins.tests import TestStorageBase

from snakemake_storage_plugin_godwit import StorageProvider, StorageProviderSettings

_PROGRAMS = Path(os.environ.get("GODWIT_PROGRAMS") or Path(__file__).parents[3] / "target/debug")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("root")
    (root / "in").mkdir()
    for name in ("a", "b"):
        (root / "in" / f"{name}.txt").write_text("line\n" * (3 if name == "a" else 5))
    server = subprocess.Popen(
        [_PROGRAMS / "godwitd", "--root", root, "--anonymous", "rw", "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    address = server.stdout.readline().removeprefix("listening on ").strip()
    yield f"ftp://{address}"
    server.terminate()
    server.wait(30)


class TestStorage(TestStorageBase):
    __test__ = True
    files_only = False

    @pytest.fixture(autouse=True)
    def on(self, url: str) -> None:
        self.url = url

    def get_query(self, tmp_path: Path) -> str:
        return f"{self.url}/new/a%20b.txt"

    def get_query_not_existing(self, tmp_path: Path) -> str:
        return f"{self.url}/absent.txt"

    def get_storage_provider_cls(self) -> Type[StorageProviderBase]:
        return StorageProvider

    def get_storage_provider_settings(self) -> Optional[StorageProviderSettingsBase]:
        return StorageProviderSettings(program=str(_PROGRAMS / "godwit"))


def test_queries_with_passwords_are_refused_and_not_shown() -> None:
    result = StorageProvider.is_valid_query("ftpes://jo:secret@h/x")
    assert not result and "secret" not in str(result)
    for query in ("s3://h/x", "ftp://h", "ftp:///x", "ftp://[/x"):
        assert not StorageProvider.is_valid_query(query)
    assert StorageProvider.is_valid_query("gsiftp://h/{sample}.txt")


def test_a_workflow_reads_and_writes_at_the_server(url: str, tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(
        f"""
storage:
    provider="godwit"

SAMPLES, = glob_wildcards(storage("{url}/in/{{s}}.txt"))

rule all:
    input: storage("{url}/out/sum.txt")

rule count:
    input: storage("{url}/in/{{s}}.txt")
    output: storage("{url}/out/{{s}}.count")
    shell: "wc -l < {{input}} > {{output}}"

rule total:
    input: storage(expand("{url}/out/{{s}}.count", s=sorted(SAMPLES)))
    output: storage("{url}/out/sum.txt")
    shell: "cat {{input}} > {{output}}"
"""
    )
    command = [sys.executable, "-m", "snakemake", "--cores", "1"]
    environment = {**os.environ, "PATH": f"{_PROGRAMS}:{os.environ['PATH']}"}
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    found = subprocess.run(
        [_PROGRAMS / "godwit", "cp", f"{url}/out/sum.txt", tmp_path / "sum"], timeout=60
    )
    assert found.returncode == 0 and (tmp_path / "sum").read_text().split() == ["3", "5"]
