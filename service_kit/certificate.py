"""The certificate with which a service of ours speaks HTTPS: whether it can be used, for which names and until when.

Python reads a certificate's fields only from a connection, so `examine` shakes hands with itself, in memory.
"""

import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service_kit.trust import tls_problem


@dataclass(frozen=True, slots=True)
class Certificate:
    """`names`: host names and addresses. `expires_at`: seconds since 1970."""

    names: tuple[str, ...]
    expires_at: float

    @property
    def days_left(self) -> float:
        """Days until it expires."""
        return (self.expires_at - time.time()) / 86_400


def server_context(cert_file: Path, key_file: Path) -> ssl.SSLContext:
    """The context of a server. Raises ValueError with what is wrong with one of the files."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    for variable, path in (("AGON_TLS_CERT_FILE", cert_file), ("AGON_TLS_KEY_FILE", key_file)):
        try:
            path.read_bytes()
        except OSError as error:
            raise ValueError(f"{variable} cannot be read: {error.strerror} ({path})") from None
    try:
        context.load_cert_chain(cert_file, key_file, password=lambda: "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ValueError(f"the key in {key_file} is not that of the certificate in {cert_file}") from None
        raise ValueError(
            f"{cert_file} and {key_file} are no certificate and key in PEM form, without a password"
        ) from None
    return context


def check_pair(cert_file: Path, key_file: Path) -> None:
    """Raise ValueError unless the files hold a certificate and its key."""
    server_context(cert_file, key_file)


def examine(cert_file: Path, key_file: Path, ca_file: Path | None = None) -> Certificate:
    """Names and end of the certificate. Raises ValueError for files that cannot be used, for one that is not valid
    now, and with `ca_file` for one that its authorities have not signed."""
    server = server_context(cert_file, key_file)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.load_verify_locations(cafile=cert_file if ca_file is None else ca_file)
    if ca_file is None:
        client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # its own certificate is trust enough
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    server_side = server.wrap_bio(to_server, to_client, server_side=True)
    client_side = client.wrap_bio(to_client, to_server)
    for side in (client_side, server_side, client_side):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError as error:
            raise ValueError(f"{cert_file} {tls_problem(error)}") from None
    shown = client_side.getpeercert() or {}
    alternatives: Any = shown.get("subjectAltName", ())  # typeshed does not say that it is pairs
    names = tuple(str(value) for _, value in alternatives)
    return Certificate(names, ssl.cert_time_to_seconds(str(shown["notAfter"])))
