"""Whole programs on the loopback address: godwitd, godwit-service and an agent.

``GODWIT_PROGRAMS`` is the directory of the programs (``target/debug`` of this tree). Tests that
need them are skipped where they are missing, unless ``GODWIT_REQUIRE_PEERS`` is set.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import pytest

from godwit import Service

_TREE = Path(__file__).resolve().parents[2]

#: Seconds for a program to say that it listens, and to end.
_START, _END = 60, 30


def programs() -> Path:
    return Path(os.environ.get("GODWIT_PROGRAMS") or _TREE / "target" / "debug")


def missing(what: str) -> None:
    """A skip, or a failure where nothing may be missing."""
    if os.environ.get("GODWIT_REQUIRE_PEERS"):
        pytest.fail(f"{what} is missing")
    pytest.skip(f"{what} is missing")


@dataclass
class Running:
    """Programs of a test, which end with it."""

    folder: Path
    processes: List["subprocess.Popen[str]"] = field(default_factory=list)

    more: Dict[str, str] = field(default_factory=dict)

    def environment(self) -> Dict[str, str]:
        """Nothing of the user who runs the tests."""
        kept = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "NO_COLOR": "1"}
        return {**kept, **self.more}

    def start(self, program: str, *arguments: str, says: Optional[str] = None) -> str:
        """Starts it; returns the rest of the first line of its output that begins with ``says``."""
        path = programs() / program
        if not path.exists():
            missing(program)
        log = open(self.folder / f"{program}-{len(self.processes)}.log", "w")
        process = subprocess.Popen(
            [str(path), *arguments],
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=log,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        log.close()
        self.processes.append(process)
        if says is None:
            return ""
        killer = threading.Timer(_START, process.kill)
        killer.start()
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(says):
                killer.cancel()
                return line[len(says) :].strip()
        text = Path(log.name).read_text()
        raise AssertionError(f"{program} did not say that it listens: {text}")

    def run(self, program: str, *arguments: Any) -> None:
        """Runs it to its end, which is to be a good one."""
        subprocess.run(
            [str(programs() / program), *map(str, arguments)],
            env=self.environment(),
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=_START,
        )

    def end(self) -> None:
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(_END)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


@dataclass
class Server:
    """A godwitd, and the directory that it serves."""

    root: Path
    address: str

    def url(self, path: str) -> str:
        return f"ftp://{self.address}{path}"

    def write(self, path: str, content: bytes) -> str:
        where = self.root / path.lstrip("/")
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_bytes(content)
        return self.url(path)


@dataclass
class Site:
    """A service with an agent, and the token of its operator."""

    url: str
    token: str
    token_file: Path

    def service(self) -> Service:
        return Service(self.url, self.token)


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("programs"))
    try:
        yield running
    finally:
        running.end()


def serve(running: Running, root: Path) -> Server:
    address = running.start(
        "godwitd",
        *("--root", str(root), "--anonymous", "rw", "--listen", "127.0.0.1:0"),
        says="listening on ",
    )
    return Server(root, address)


@pytest.fixture(scope="session")
def source(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Server:
    return serve(running, tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="session")
def target(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Server:
    return serve(running, tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="session")
def site(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("service")
    data = folder / "data"
    url = "http://" + running.start(
        "godwit-service",
        *("serve", "--data", str(data), "--listen", "127.0.0.1:0", "--no-agent"),
        says="http://",
    )
    token = folder / "mover.token"
    running.run("godwit-service", "enroll", "mover", "--to", token, "--data", data)
    running.start(
        "godwit-service",
        *("agent", "--service", url, "--name", "mover", "--token-file", str(token)),
        *("--state", str(folder / "mover")),
    )
    return Site(url, (data / "token").read_text().strip(), data / "token")


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program godwit, found as users find it."""
    path = programs() / "godwit"
    if not path.exists():
        missing("godwit")
    monkeypatch.setenv("PATH", f"{programs()}:{os.environ['PATH']}")
    return path


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user who runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.getbasetemp()))
    for name in list(os.environ):
        if name in ("XDG_STATE_HOME", "BEARER_TOKEN", "X509_USER_PROXY") or (
            name.startswith("GODWIT_") and name not in ("GODWIT_PROGRAMS", "GODWIT_REQUIRE_PEERS")
        ):
            monkeypatch.delenv(name)
