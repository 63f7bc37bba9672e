"""How often an address may ask for something that costs: GCRA buckets in Redis, shared by all controllers."""

from dataclasses import dataclass

from controller.addresses import ClientAddress
from controller.keys import Keys
from controller.metrics import Metrics
from controller.store import Store
from wire.errors import ApiError, ErrorCode


@dataclass(frozen=True)
class Rate:
    per_minute: int
    burst: int


class RateLimiter:
    def __init__(self, store: Store, keys: Keys, metrics: Metrics, *, rate: Rate, local_rate: Rate) -> None:
        self._store = store
        self._keys = keys
        self._metrics = metrics
        self._rate = rate
        self._local_rate = local_rate

    async def check(self, client: ClientAddress, kind: str) -> None:
        """Raises ApiError RATE_LIMITED with the seconds to wait. Each `kind` of request has a bucket of its own."""
        rate = self._local_rate if client.is_local else self._rate
        interval_us = round(60e6 / rate.per_minute)
        wait_us = await self._store.run("gcra", [self._keys.rate(kind, client.identity)], interval_us, rate.burst)
        self._metrics.rate_limit.labels("refused" if wait_us else "allowed").inc()
        if wait_us:
            raise ApiError(
                ErrorCode.RATE_LIMITED, "Too many requests. Wait a moment.", retry_after_s=max(1.0, wait_us / 1e6)
            )
