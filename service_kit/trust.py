"""Which servers a client of ours trusts over TLS, and what is wrong with one that it does not trust.

Clients pass `trust(...)` as `verify=` to httpx and as `ssl=` to aiohttp.
"""

import ssl
from pathlib import Path
from typing import Literal

import certifi

#: X509_V_ERR_* of OpenSSL, which have no names in Python.
_NOT_YET_VALID, _EXPIRED = 9, 10
_OTHER_NAME = (62, 64)  #: host name, IP address
_PLAIN = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE")


def trust(ca_file: Path | None) -> ssl.SSLContext | Literal[True]:
    """The authorities of a client: the public ones, and those of `ca_file`. True: the library's own public ones.
    Raises ValueError for a file without certificates."""
    if ca_file is None:
        return True
    context = ssl.create_default_context(cafile=certifi.where())
    try:
        context.load_verify_locations(cafile=ca_file)
    except OSError as error:  # ssl.SSLError, too
        reason = "it holds no certificate in PEM form" if isinstance(error, ssl.SSLError) else error.strerror
        raise ValueError(f"AGON_CA_FILE cannot be used: {reason} ({ca_file})") from None
    return context


def check_authorities(ca_file: Path) -> None:
    """Raise ValueError if the file cannot be used."""
    trust(ca_file)


def tls_problem(error: BaseException) -> str | None:
    """What an error of a connection says of TLS, as the end of a sentence about the server; None: it says nothing."""
    found = _ssl_error(error)
    if found is None:
        return None
    if not isinstance(found, ssl.SSLCertVerificationError):
        if found.reason in _PLAIN:
            return "speaks plain HTTP: use http:// for it, or give it AGON_TLS_CERT_FILE and AGON_TLS_KEY_FILE"
        return f"has broken off the TLS handshake ({found.reason or found})"
    if found.verify_code == _EXPIRED:
        return "shows a certificate that has expired (or the clock of this machine is wrong)"
    if found.verify_code == _NOT_YET_VALID:
        return "shows a certificate that is not valid yet: is the clock of this machine right?"
    if found.verify_code in _OTHER_NAME:
        message = str(found.verify_message).strip().rstrip(".")
        return f"shows a certificate for another host ({message}): use a name that is in the certificate"
    return (
        f"shows a certificate of an authority that is not trusted here ({found.verify_message}): "
        "name the file of its authority in AGON_CA_FILE"
    )


def _ssl_error(error: BaseException | None) -> ssl.SSLError | None:
    """The first error of TLS among an error and its causes."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None)  # aiohttp's, which are
        if inner is None and isinstance(error, ssl.SSLError):  # errors of TLS by their class, without its fields
            return error
        seen.add(id(error))
        error = inner or error.__cause__ or error.__context__
    return None
