"""The HTTP client for requests to registered workers, and for no others.

It is aiohttp, while the rest of the project uses httpx: each token of each answer is a chunk of its own, and a chunk
costs 34 us of a core with aiohttp and 158 us with httpx (32 streams, 2-core AMD EPYC).
"""

from pathlib import Path

import aiohttp

from service_kit.trust import trust

KEEP_ALIVE_S = 4.0  #: idle connections are closed after this; uvicorn closes its end after 5 s
NAMES_S = 1  #: a resolved address is cached for this long; a worker that restarts in a container gets a new one


class WorkerHttp:
    """Owns the connections, in the event loop in which it was started. No cookies, no proxy from the environment, any
    number of connections. Reads have no time limit, because each caller sets its own."""

    def __init__(self, token: str, connect_timeout_s: float, ca_file: Path | None = None) -> None:
        self._token = token
        self._ca_file = ca_file
        self._connect_timeout_s = connect_timeout_s
        self._session: aiohttp.ClientSession | None = None

    def start(self) -> None:
        """Open the session; connections follow on demand."""
        self._session = aiohttp.ClientSession(
            headers={
                "Authorization": f"Bearer {self._token}",
                "User-Agent": "agon-controller",
                "Accept-Encoding": "identity",
            },
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=KEEP_ALIVE_S, ttl_dns_cache=NAMES_S, ssl=trust(self._ca_file)
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )

    async def stop(self) -> None:
        """Close all connections. Safe when never started."""
        if self._session is not None:
            await self._session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        """The started session, which sends the worker token with every request."""
        assert self._session is not None, "not started"
        return self._session
