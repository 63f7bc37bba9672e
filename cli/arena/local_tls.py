"""Under which name the processes of one machine reach one another over TLS: one that is in the certificate."""

import socket
from dataclasses import dataclass
from pathlib import Path

import certifi
from pydantic import ValidationError

from cli.errors import CliError
from service_kit.certificate import examine
from service_kit.own_addresses import is_this_machine
from service_kit.settings import ServiceSettings, problems

_ANY_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True)
class LocalTls:
    """`scheme`: of the services' URLs. `name`: the host in them; None: the one that they listen on. `ca_file`: private
    authorities that clients trust."""

    scheme: str = "http"
    name: str | None = None
    ca_file: Path | None = None


def read_local_tls(host: str) -> LocalTls:
    """From AGON_TLS_CERT_FILE, AGON_TLS_KEY_FILE and AGON_CA_FILE, for services that listen on `host`. Raises CliError
    where local clients could not connect."""
    try:
        settings = ServiceSettings()
        if settings.tls_pair is None:
            return LocalTls(ca_file=settings.ca_file)
        examine(*settings.tls_pair, ca_file=settings.ca_file or Path(certifi.where()))
        names = examine(*settings.tls_pair).names
    except ValidationError as error:
        raise CliError(f"{problems(error)[0]}.") from None
    except ValueError as error:
        raise CliError(f"{error}.") from None
    reachable = _ANY_HOST.get(host, host)
    for name in (reachable, *names):
        if name in names and _reaches(name, host):
            return LocalTls("https", name, settings.ca_file)
    raise CliError(
        f"the certificate of AGON_TLS_CERT_FILE is for {', '.join(names) or 'no name'}: the services reach one another "
        f"at {reachable}, so add that to it, or give --host one of its names."
    )


def _reaches(name: str, host: str) -> bool:
    """Whether a server that listens on `host` is reached under `name` from this machine."""
    if name == host:
        return True
    if host in _ANY_HOST:
        return is_this_machine(name)
    try:
        return host in {str(found[4][0]) for found in socket.getaddrinfo(name, None)}
    except (OSError, UnicodeError):
        return False
