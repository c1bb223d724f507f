"""A certificate authority with a user, and servers that trust it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

Pair = Tuple[x509.Certificate, rsa.RSAPrivateKey]


def _name(common: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "Lab"),
            x509.NameAttribute(x509.NameOID.COMMON_NAME, common),
        ]
    )


def certificate(
    common: str, issuer: Optional[Pair], extensions: List[x509.ExtensionType], hours: float = 48
) -> Pair:
    key = rsa.generate_private_key(65537, 2048)
    now, name = datetime.now(timezone.utc), _name(common)
    builder = x509.CertificateBuilder(
        issuer[0].subject if issuer else name, name, key.public_key(), x509.random_serial_number()
    )
    builder = builder.not_valid_before(now - timedelta(hours=1))
    builder = builder.not_valid_after(now + timedelta(hours=hours))
    signer = (issuer[1] if issuer else key).public_key()
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False
    )
    builder = builder.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=not issuer)
    return builder.sign(issuer[1] if issuer else key, hashes.SHA256()), key


def write(path: Path, certificates: List[x509.Certificate], key: Any = None) -> Path:
    pem = serialization.Encoding.PEM
    parts = [item.public_bytes(pem) for item in certificates[:1]]
    if key is not None:
        shape = serialization.PrivateFormat.TraditionalOpenSSL
        parts.append(key.private_bytes(pem, shape, serialization.NoEncryption()))
    parts += [item.public_bytes(pem) for item in certificates[1:]]
    path.touch(mode=0o600)
    path.write_bytes(b"".join(parts))
    return path


@dataclass
class Grid:
    folder: Path

    @property
    def authorities(self) -> Path:
        return self.folder / "authorities"

    @property
    def host(self) -> Path:
        return self.folder / "host.pem"

    @property
    def user(self) -> Path:
        return self.folder / "user.pem"

    @property
    def proxy(self) -> Path:
        return self.folder / "proxy.pem"

    @property
    def gridmap(self) -> Path:
        return self.folder / "gridmap"

    def environment(self) -> Dict[str, str]:
        return {"X509_CERT_DIR": str(self.authorities), "X509_USER_PROXY": str(self.proxy)}


def make(folder: Path, godwit: Path) -> Grid:
    grid = Grid(folder)
    signs = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    authority = certificate("CA", None, [x509.BasicConstraints(True, None), signs])
    names = x509.SubjectAlternativeName(
        [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
    )
    host = certificate("localhost", authority, [names])
    user = certificate("Jo", authority, [])
    write(grid.host, [host[0]], host[1])
    write(grid.user, [user[0]], user[1])
    grid.authorities.mkdir()
    plain = write(grid.authorities / "ca.pem", [authority[0]])
    hashed = subprocess.run(
        ["openssl", "x509", "-noout", "-hash", "-in", plain],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    plain.rename(grid.authorities / f"{hashed}.0")
    (grid.authorities / f"{hashed}.signing_policy").write_text(
        "access_id_CA X509 '/O=Lab/CN=CA'\npos_rights globus CA:sign\n"
        "cond_subjects globus '\"/O=Lab/*\"'\n"
    )
    grid.gridmap.write_text('"/O=Lab/CN=Jo" root\n')
    arguments = ["--cert", grid.user, "--key", grid.user, "--out", grid.proxy]
    subprocess.run(
        [str(godwit), "proxy", "init", "--hours", "12", *map(str, arguments)],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return grid
