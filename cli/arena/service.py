"""How a service of ours is run as a process: its command, its environment, its URL, and the probe of its readiness."""

import os
import re
import sys
from collections.abc import Awaitable, Callable, Mapping

import httpx

from cli.arena.child import ProbeResult

_PROBE_TIMEOUT_S = 5.0
_ANY_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1"}
#: Variables of the environment that hold a key of another service.
_KEY_NAME = re.compile(r"(API_?KEY|_KEY|_TOKEN|_SECRET)$", re.IGNORECASE)
STORE_PASSWORDS = ("AGON_REDIS_PASSWORD", "AGON_SENTINEL_PASSWORD")  #: only the controller gets them
#: What only some services get. Each may come from a file, which only those may read that get the secret.
_SECRETS = ("AGON_WORKER_TOKEN", "AGON_ADMIN_TOKEN", "AGON_VOTER_KEY", "AGON_PROXY_TOKEN")
_NAMES = (*_SECRETS, *STORE_PASSWORDS, "AGON_REDIS_URL")
_PRIVATE = frozenset({*(f"{name}{end}" for name in _NAMES for end in ("", "_FILE")), "REDIS_URL"})


def service_command(package: str, *flags: str) -> tuple[str, ...]:
    """-P: a folder in the current directory that has the name of one of our packages must not be imported."""
    return (sys.executable, "-P", "-m", package, *flags)


def service_environment(*, has_keys: bool = False, speaks_tls: bool = True) -> Mapping[str, str]:
    """The environment of every child: that of this process without the secrets and addresses that only some need.

    `has_keys`: keys of other services stay in it; only workers need them, for hosted models. `speaks_tls`: so do the
    files of the certificate with which the service shall speak HTTPS.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in _PRIVATE
        and (has_keys or name.startswith("AGON_") or not _KEY_NAME.search(name))
        and (speaks_tls or not name.startswith("AGON_TLS_"))
    }
    return {**environment, "PYTHONUNBUFFERED": "1"}


def base_url(host: str, port: int, scheme: str = "http") -> str:
    """The URL under which a local client reaches a server that binds `host`, which may be a wildcard."""
    reachable = _ANY_HOST.get(host, host)
    return f"{scheme}://[{reachable}]:{port}" if ":" in reachable else f"{scheme}://{reachable}:{port}"


def http_probe(client: httpx.AsyncClient, url: str) -> Callable[[], Awaitable[ProbeResult]]:
    """A probe of the readiness route at `url`."""

    async def probe() -> ProbeResult:
        try:
            answer = await client.get(url, timeout=_PROBE_TIMEOUT_S)
        except httpx.HTTPError:
            return ProbeResult.SILENT
        return ProbeResult.READY if answer.status_code == 200 else ProbeResult.ALIVE

    return probe
