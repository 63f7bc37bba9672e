"""Checks a worker's URL before the worker starts: may it register there, and does this controller reach it?

The controller calls the URL back with a challenge that only a holder of the worker token can answer. It is no way to
send requests through the controller: the URL has a host of AGON_WORKER_HOSTS and no path, the request has a fixed path
and no credential, no redirect is followed, a few seconds and a few bytes are the limit, few run at once, and the caller
learns whether its own answer arrived.
"""

import asyncio
import hmac
import secrets
from pathlib import Path

import aiohttp

from controller.workers.worker_hosts import WorkerHosts
from service_kit.trust import tls_problem, trust
from wire.joining import CHALLENGE_PATH, PROOF_CHARS, JoinCheck, JoinReport, proof_of
from wire.releases import RELEASE, mismatch

TIMEOUT_S = 3.0
MAX_AT_ONCE = 4


class Joining:
    """Owns the limit on concurrent calls. `token`: the worker token."""

    def __init__(self, hosts: WorkerHosts, token: str, ca_file: Path | None) -> None:
        self._hosts = hosts
        self._token = token
        self._ca_file = ca_file
        self._room = asyncio.Semaphore(MAX_AT_ONCE)

    async def check(self, asked: JoinCheck, *, is_from_here: bool) -> JoinReport:
        """What to change before the worker starts. `is_from_here`: a process of this machine asks. Raises ApiError
        INVALID_REQUEST or FORBIDDEN for the URL, as a registration would."""
        url = self._hosts.checked(asked.url, is_from_here=is_from_here)
        problem = mismatch(asked.version)
        if problem is None:
            async with self._room:
                problem = await self._call_back(url)
        return JoinReport(version=RELEASE, problem=problem)

    async def _call_back(self, url: str) -> str | None:
        """Why the answer to a challenge did not arrive; None: it did."""
        challenge = secrets.token_hex(16)
        try:
            async with (
                asyncio.timeout(TIMEOUT_S),
                aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), trust_env=False) as http,
                http.get(
                    f"{url}{CHALLENGE_PATH}/{challenge}", allow_redirects=False, ssl=trust(self._ca_file)
                ) as answer,
            ):
                shown = await answer.content.read(PROOF_CHARS + 1)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return f"The controller cannot reach {url}: it {_reason(error)}"
        if hmac.compare_digest(shown, proof_of(self._token, challenge).encode()):
            return None
        return f"Another server answers the controller at {url}: give an address and a port of this machine."


def _reason(error: Exception) -> str:
    """The end of a sentence about the URL."""
    if (problem := tls_problem(error)) is not None:
        return f"{problem}."
    if isinstance(error, TimeoutError):
        return f"does not answer within {TIMEOUT_S:.0f} s; is a firewall between the machines, or the address wrong?"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "has a name that the controller cannot resolve; give an address."
    if isinstance(error, aiohttp.ClientConnectorError):
        return "refuses the connection; is the address another machine's, or a firewall between them?"
    return "breaks off; does it speak TLS, and the URL not begin with https://, or the other way round?"
