"""Signs a proxy certificate (RFC 3820) for the key of a transfer service.

No key crosses the network: the service has made one, and asks for a certificate of it.
"""

from __future__ import annotations

import os
import stat
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, List, Optional

from ._settings import PathLike
from .errors import BadAnswer, DelegationError

#: Most bytes of a proxy file.
_FILE_BYTES_MAX = 1 << 20

_PROXY_CERT_INFO = "1.3.6.1.5.5.7.1.14"

#: ProxyCertInfo (RFC 3820, section 3.8) with the policy that a proxy has all rights of its issuer,
#: and that of a limited proxy. Neither limits how many proxies may follow.
_INHERIT_ALL = bytes.fromhex("300c300a06082b06010505071501")
_LIMITED = bytes.fromhex("300f300d060b2b060104019b5001010109")

#: Clocks of other machines are late by less.
_CLOCK_SKEW = timedelta(minutes=5)


def path_of(proxy: Optional[PathLike]) -> Path:
    """Where the proxy of the user is."""
    default = f"/tmp/x509up_u{os.getuid()}"
    return Path(proxy or os.environ.get("X509_USER_PROXY") or default)


class Issuer:
    """The proxy of a user, which signs for others."""

    def __init__(self, path: Path) -> None:
        try:
            from cryptography import x509
            from cryptography.hazmat.primitives.serialization import load_pem_private_key
        except ImportError:
            raise DelegationError("delegation needs the package cryptography") from None
        try:
            with open(path, "rb") as file:
                if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                    raise DelegationError(f"{path}: others may read the key of the proxy")
                text = file.read(_FILE_BYTES_MAX)
            self._chain: List[Any] = x509.load_pem_x509_certificates(text)
            self._key: Any = load_pem_private_key(text, None)
        except OSError as error:
            raise DelegationError(f"{path}: {error.strerror}") from None
        except (ValueError, TypeError):
            raise DelegationError(f"{path}: this is no proxy") from None
        self._path = path
        self.ends: datetime = min(item.not_valid_after_utc for item in self._chain)
        if self.ends <= datetime.now(timezone.utc):
            raise DelegationError(f"{path}: the proxy has expired")

    def sign(self, request: str, seconds: float) -> str:
        """A proxy for the key of a request (PKCS#10, PEM), then the chain, PEM."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization

        try:
            wanted = x509.load_pem_x509_csr(request.encode())
            is_signed = wanted.is_signature_valid
        except (ValueError, TypeError):
            is_signed = False
        if not is_signed:
            raise BadAnswer("the service asks for a proxy in a way that nobody signs")
        issuer = self._chain[0]
        now, serial = datetime.now(timezone.utc), x509.random_serial_number()
        # Some software reads a serial number into 64 bits.
        serial >>= 97
        name = x509.NameAttribute(x509.NameOID.COMMON_NAME, str(serial))
        subject = x509.Name([*issuer.subject.rdns, x509.RelativeDistinguishedName([name])])
        usage = x509.KeyUsage(True, False, True, False, False, False, False, False, False)
        info = x509.UnrecognizedExtension(
            x509.ObjectIdentifier(_PROXY_CERT_INFO), self._proxy_cert_info()
        )
        ends = min(self.ends, now + timedelta(seconds=seconds))
        made = (
            x509.CertificateBuilder(issuer.subject, subject, wanted.public_key(), serial)
            .not_valid_before(max(now - _CLOCK_SKEW, issuer.not_valid_before_utc))
            .not_valid_after(ends)
            .add_extension(usage, critical=True)
            .add_extension(info, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        return b"".join(item.public_bytes(pem) for item in (made, *self._chain)).decode()

    def _proxy_cert_info(self) -> bytes:
        """That of the issuer decides: what is limited stays limited."""
        for extension in self._chain[0].extensions:
            if extension.oid.dotted_string != _PROXY_CERT_INFO:
                continue
            value = bytes(extension.value.value)
            if value[2:3] == b"\x02" and value[4:5] == b"\x00":
                raise DelegationError(f"{self._path}: no further proxy may be signed by it")
            if _LIMITED[4:] in value:
                return _LIMITED
        return _INHERIT_ALL
