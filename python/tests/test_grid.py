"""Grid identities: delegation to the service, gsiftp for the local program and for pandas."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pandas
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

import godwit
import grid as grids
from conftest import Running, Server, Site, programs
from godwit import aio, errors
from godwit._delegation import _INHERIT_ALL, _LIMITED, Issuer
from grid import Grid


@pytest.fixture(scope="module")
def grid(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Grid:
    if not (programs() / "godwit").exists():
        pytest.skip("godwit is missing")
    return grids.make(tmp_path_factory.mktemp("grid"), programs() / "godwit")


@pytest.fixture(scope="module")
def server(running: Running, grid: Grid, tmp_path_factory: pytest.TempPathFactory) -> Server:
    root = tmp_path_factory.mktemp("gsi")
    address = running.start(
        "godwitd",
        *("--root", str(root), "--listen", "127.0.0.1:0", "--gsi", "--cert", str(grid.host)),
        *("--trusted-certs", str(grid.authorities), "--gridmap", str(grid.gridmap)),
        *("--privsep=false",),
        says="listening on ",
    )
    return Server(root, address.replace("127.0.0.1", "localhost"))


@pytest.fixture(autouse=True)
def identity(grid: Grid, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in grid.environment().items():
        monkeypatch.setenv(name, value)


def url(server: Server, path: str) -> str:
    return f"gsiftp://{server.address}{path}"


def test_pandas_and_copies_log_in_with_a_proxy(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pandas.DataFrame({"n": [1, 2, 3]})
    table.to_csv(url(server, "/table.csv"), index=False)
    assert pandas.read_csv(url(server, "/table.csv")).equals(table)
    godwit.copy(url(server, "/table.csv"), tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "n\n1\n2\n3\n"
    monkeypatch.setenv("X509_USER_PROXY", str(tmp_path / "none"))
    with pytest.raises(errors.Denied):
        godwit.copy(url(server, "/table.csv"), tmp_path / "other")
    with pytest.raises(PermissionError):
        pandas.read_csv(url(server, "/table.csv"), storage_options={"stall_timeout": 20.0})


def test_a_proxy_is_signed_once_for_the_service(site: Site, grid: Grid) -> None:
    with site.service() as service:
        ends = service.delegate(lifetime=3 * 3600)
        assert timedelta(hours=2.9) < ends - datetime.now(timezone.utc) < timedelta(hours=3)
        assert service.delegate(grid.proxy) == ends

    async def again() -> datetime:
        async with aio.Service(site.url, site.token) as other:
            return await other.delegate()

    assert asyncio.run(again()) == ends


def test_what_cannot_be_delegated_is_refused_and_not_sent(
    site: Site, grid: Grid, tmp_path: Path
) -> None:
    with site.service() as service:
        with pytest.raises(errors.DelegationError):
            service.delegate(tmp_path / "absent")
        (tmp_path / "text").touch(mode=0o600)
        (tmp_path / "text").write_text("no proxy")
        with pytest.raises(errors.DelegationError):
            service.delegate(tmp_path / "text")
        public = tmp_path / "public"
        public.write_bytes(grid.proxy.read_bytes())
        public.chmod(0o644)
        with pytest.raises(errors.DelegationError):
            service.delegate(public)
        old = grids.certificate("Old", None, [], hours=-0.5)
        with pytest.raises(errors.DelegationError):
            service.delegate(grids.write(tmp_path / "old", [old[0]], old[1]))
    plain = godwit.Service("http://service.example.org", "t", allow_plain_http=True)
    with pytest.raises(errors.DelegationError):
        plain.delegate()
    for request in ("", "no request", grid.user.read_text()):
        with pytest.raises(errors.BadAnswer):
            Issuer(grid.proxy).sign(request, 60)


def test_a_service_has_to_prove_its_name(running: Running, grid: Grid, tmp_path: Path) -> None:
    address = running.start(
        "godwit-service",
        *("serve", "--data", f"{tmp_path}/data", "--listen", "127.0.0.1:0", "--no-agent"),
        *("--cert", str(grid.host), "--key", str(grid.host)),
        says="https://",
    )
    (authority,) = grid.authorities.glob("*.0")
    files = {"token_file": tmp_path / "data" / "token", "limit": godwit.Limit(retries=0)}
    settings: Any = {**files, "ca": authority}
    with godwit.Service(f"https://{address}", **settings) as service:
        assert service.user_name()
        assert service.delegate() > datetime.now(timezone.utc)
    for wrong in ({"ca": None}, {"ca": grid.user}):
        with pytest.raises(errors.Unreachable) as refused:
            godwit.Service(f"https://{address}", **{**settings, **wrong}).user_name()
        assert "CERTIFICATE_VERIFY_FAILED" in str(refused.value)


def test_a_limited_proxy_signs_limited_ones_and_path_lengths_hold(
    grid: Grid, running: Running, tmp_path: Path
) -> None:
    key = rsa.generate_private_key(65537, 2048)
    builder = x509.CertificateSigningRequestBuilder(x509.Name([]))
    pem = serialization.Encoding.PEM
    request = builder.sign(key, hashes.SHA256()).public_bytes(pem).decode()

    def policy(*flags: str) -> bytes:
        name = f"{tmp_path}/{'-'.join(flags)}.pem"
        made = ("--cert", grid.user, "--key", grid.user, "--out", name, *flags)
        running.run("godwit", "proxy", "init", *made)
        chain = x509.load_pem_x509_certificates(Issuer(Path(name)).sign(request, 60).encode())
        assert [len(item.subject.rdns) for item in chain] == [4, 3, 2]
        (found,) = [e for e in chain[0].extensions if e.oid.dotted_string.endswith(".1.14")]
        assert found.critical
        return bytes(found.value.public_bytes())

    assert policy("--limited") == _LIMITED and policy("--path-length=1") == _INHERIT_ALL
    with pytest.raises(errors.DelegationError):
        policy("--path-length=0")


def test_a_job_logs_in_as_the_user_who_delegated(
    site: Site, running: Running, grid: Grid, server: Server, tmp_path: Path
) -> None:
    data = site.token_file.parent
    running.run("godwit-service", "enroll", "grid", "--to", f"{tmp_path}/token", "--data", data)
    # The agent trusts the CA, and has no proxy of its own.
    running.more = {"X509_CERT_DIR": str(grid.authorities)}
    running.start(
        "godwit-service",
        *("agent", "--service", site.url, "--name", "grid", "--token-file", f"{tmp_path}/token"),
        *("--state", f"{tmp_path}/state", "--label", "grid"),
    )
    running.more = {}
    with site.service() as service:
        service.delegate()
        server.write("/jo", b"content")
        options = godwit.JobOptions(labels=["grid"])
        job = service.submit(url(server, "/jo"), url(server, "/of-jo"), options=options)
        job.wait(120, progress=False)
    assert (server.root / "of-jo").read_bytes() == b"content"
