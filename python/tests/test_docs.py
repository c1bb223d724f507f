"""The examples of the documentation, run in their order."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Dict

import pytest

from conftest import Running, Server, Site, serve

_TREE = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["python/README.md", "docs/python.md"])
def test_examples_run(
    page: str,
    site: Site,
    source: Server,
    tmp_path_factory: pytest.TempPathFactory,
    running: Running,
    program: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = serve(running, tmp_path_factory.mktemp("copies"))
    source.write("/run7/x.root", b"x" * 1000)
    source.write("/run7/y.root", b"y" * 2000)
    monkeypatch.setenv("GODWIT_SERVICE", site.url)
    monkeypatch.setenv("GODWIT_SERVICE_TOKEN", site.token)
    monkeypatch.chdir(tmp_path_factory.mktemp("examples"))
    text = (_TREE / page).read_text()
    names: Dict[str, Any] = {"__name__": "__main__"}
    blocks = list(_BLOCK.finditer(text))
    assert blocks
    for block in blocks:
        code = block[1].replace("a.example.org", source.address)
        code = code.replace("b.example.org", target.address)
        # Errors name the page and the line.
        lines = "\n" * text.count("\n", 0, block.start(1))
        exec(compile(lines + code, page, "exec"), names)
    printed = capsys.readouterr().out
    assert "1000" in printed
    assert (target.root / "run7" / "x.root").read_bytes() == b"x" * 1000
    if page == "docs/python.md":
        assert "y.root verified" in printed and "6.0" in printed
        assert sorted(os.listdir("mirror")) == ["x.root", "y.root"]
        (target.root / "table.csv").unlink()
        assert "not_found user" in printed and "StateChanged" in printed
        assert sorted(os.listdir(target.root / "run7")) == ["again.root", "x.root", "y.root"]
