"""The HTTP client that speaks to registered workers, and to nobody else.

aiohttp and not httpx, which carries everything else: each token of each answer is a chunk of its own, and a chunk costs
httpx 158 us of a core where aiohttp needs 34 (32 streams, 2-core AMD EPYC).
"""

import aiohttp

KEEP_ALIVE_S = 4.0  #: of idle connections; uvicorn closes its end after 5
NAMES_S = 1  #: how long an address is remembered; a worker that was started again in a container has a new one


class WorkerHttp:
    """Owns the connections. No cookies, no proxy from the environment, any number of connections; reads have no limit,
    because each caller sets its own. For the event loop in which it was started."""

    def __init__(self, token: str, connect_timeout_s: float) -> None:
        self._token = token
        self._connect_timeout_s = connect_timeout_s
        self._session: aiohttp.ClientSession | None = None

    def start(self) -> None:
        self._session = aiohttp.ClientSession(
            headers={
                "Authorization": f"Bearer {self._token}",
                "User-Agent": "agon-controller",
                "Accept-Encoding": "identity",
            },
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, ttl_dns_cache=NAMES_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )

    async def stop(self) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        assert self._session is not None, "not started"
        return self._session
