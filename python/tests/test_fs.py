"""The file system for fsspec, on our server and on the Grid Community Toolkit's."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import Any, Iterator

import dask.bytes
import fsspec
import pandas
import pytest
import xarray
from fsspec.core import url_to_fs

from conftest import Running, Server, missing, serve
from godwit.fs import FtpFileSystem, GodwitFileSystem

_GCT = "globus-gridftp-server"


@pytest.fixture(autouse=True)
def with_program(program: Path) -> None:
    """All tests here run it."""


def url(server: Server, path: str) -> str:
    return f"godwit+{server.url(path)}"


@pytest.fixture(scope="module", params=["godwitd", _GCT])
def server(
    request: pytest.FixtureRequest, running: Running, tmp_path_factory: pytest.TempPathFactory
) -> Server:
    root = tmp_path_factory.mktemp(request.param)
    if request.param == "godwitd":
        return serve(running, root)
    path = shutil.which(_GCT, path=os.environ["PATH"] + ":/usr/sbin")
    if path is None:
        missing(_GCT)
    as_root = ["-anonymous-user", "root", "-allow-root"] if os.geteuid() == 0 else []
    address = running.start(
        str(path),
        *("-c", "/dev/null", "-p", "0", "-control-interface", "127.0.0.1"),
        *("-data-interface", "127.0.0.1", "-allow-anonymous", "-chroot-path", str(root)),
        *as_root,
        says="Server listening at ",
    )
    return Server(root, address)


@pytest.fixture
def fs(server: Server) -> Iterator[FtpFileSystem]:
    host, port = server.address.rsplit(":", 1)
    yield FtpFileSystem(host, int(port), skip_instance_cache=True)


def test_pandas_reads_and_writes_tables(server: Server) -> None:
    table = pandas.DataFrame({"n": range(5000), "text": [f"line {n}" for n in range(5000)]})
    table.to_csv(url(server, "/out.csv"), index=False)
    assert (server.root / "out.csv").read_text().count("\n") == 5001
    assert pandas.read_csv(url(server, "/out.csv")).equals(table)


def test_dask_reads_parts_of_a_table(server: Server) -> None:
    content = b"".join(b"%d,line\n" % n for n in range(20_000))
    server.write("/parts.csv", content)
    read: Any = getattr(dask.bytes, "read_bytes")
    sample, blocks = read(url(server, "/parts.csv"), delimiter=b"\n", blocksize=64 << 10)
    parts = [block.compute(scheduler="threads") for block in blocks[0]]
    assert len(parts) > 2 and b"".join(parts) == content and content.startswith(sample)


def test_xarray_reads_arrays(server: Server) -> None:
    numbers = xarray.DataArray(range(100_000), dims="n", name="numbers").to_dataset()
    numbers.to_netcdf(server.root / "a.nc", engine="h5netcdf")
    with fsspec.open(url(server, "/a.nc"), block_size=100_000) as file:
        assert xarray.open_dataset(file, engine="h5netcdf").load().equals(numbers)


def test_files_are_listed_read_moved_and_removed(server: Server, fs: FtpFileSystem) -> None:
    # The Toolkit's server deletes non-ASCII bytes from commands.
    name = "/d/a b%;,.txt" if "localhost" in server.address else "/d/a bé%;,.txt"
    server.write(name, bytes(range(256)) * 8)
    (server.root / "d" / "sub").mkdir()
    assert sorted(fs.ls("/d", detail=False)) == [name, "/d/sub"]
    kinds = {entry["name"]: entry["type"] for entry in fs.ls(url(server, "/d"))}
    assert kinds == {name: "file", "/d/sub": "directory"}
    assert fs.size(name) == 2048 and fs.isdir("/d/sub") and fs.modified(name).year > 2000
    assert fs.cat_file(name, 250, 260) == bytes([*range(250, 256), *range(4)])
    assert fs.cat_file(name, -4) == bytes([252, 253, 254, 255])
    assert fs.cat_file(name, 5, 5) == b"" and len(fs.cat(name)) == 2048
    with fs.open(name, "rb", block_size=1000) as file:
        assert isinstance(file.read(3), bytes) and file.seek(1500) == 1500
        assert file.read() == (bytes(range(256)) * 8)[1500:]
    fs.mv(name, "/d/moved")
    fs.mkdir("/d/x/y")
    with pytest.raises(FileExistsError):
        fs.mkdir("/d/x/y")
    fs.makedirs("/d/x/y", exist_ok=True)
    assert fs.find("/d") == ["/d/moved"]
    fs.rm("/d/moved")
    fs.rm("/d", recursive=True)
    assert not fs.exists("/d")


def test_files_are_written_whole_or_not_at_all(
    server: Server, fs: FtpFileSystem, tmp_path: Path
) -> None:
    with fs.open("/w", "wb", block_size=5 << 20) as file:
        for _ in range(12):
            file.write(b"x" * (1 << 20))
        assert not (server.root / "w").exists()
    assert (server.root / "w").stat().st_size == 12 << 20
    fs.pipe_file("/w", b"short")
    assert fs.cat("/w") == b"short"
    with pytest.raises(FileExistsError):
        fs.open("/w", "xb")
    fs.start_transaction()
    file = fs.open("/never", "wb")
    file.write(b"x" * 1000)
    file.close()
    fs.transaction.complete(commit=False)
    with pytest.raises(KeyboardInterrupt), fs.open("/never", "wb", block_size=5 << 20) as file:
        file.write(b"x" * (6 << 20))
        raise KeyboardInterrupt
    assert [name for name in os.listdir(server.root) if "never" in name] == []
    fs.get("/w", str(tmp_path / "local"))
    fs.put(str(tmp_path / "local"), "/put")
    assert fs.cat("/put") == b"short"


def test_what_fails_is_an_error_of_the_system(server: Server, fs: FtpFileSystem) -> None:
    for call in (fs.info, fs.ls, fs.cat_file, fs.rm_file):
        with pytest.raises(FileNotFoundError):
            call("/absent")
    assert not fs.exists("/absent")
    server.write("/dir/x", b"x")
    with pytest.raises(IsADirectoryError):
        fs.cat_file("/dir")
    with pytest.raises(ValueError):
        fs.open("/dir/x", "ab")
    with pytest.raises(NotImplementedError):
        fs.rmdir("/dir")
    assert pickle.loads(pickle.dumps(fs)).cat("/dir/x") == b"x"


def test_a_server_that_does_not_answer_is_no_absent_file() -> None:
    fs = FtpFileSystem("127.0.0.1", 1, stall_timeout=2, skip_instance_cache=True)
    with pytest.raises(OSError) as failed:
        fs.exists("/x")
    assert not isinstance(failed.value, FileNotFoundError)


def test_urls_name_the_server_and_hold_no_password() -> None:
    fs, path = url_to_fs("gsiftp://jo@grid.example.org:2812/a%20b/c")
    assert isinstance(fs, GodwitFileSystem) and path == "/a b/c"
    assert fs.unstrip_protocol(path) == "gsiftp://jo@grid.example.org:2812/a%20b/c"
    with pytest.raises(ValueError) as refused:
        url_to_fs("ftpes://jo:secret@grid.example.org/x")
    assert "secret" not in str(refused.value)
    secret: Any = FtpFileSystem("h", password="secret", skip_instance_cache=True)
    assert "secret" not in repr(secret) + repr(vars(secret)["_access"])
