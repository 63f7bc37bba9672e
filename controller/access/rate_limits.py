"""Rate limits per address, for requests that cost something: GCRA buckets in Redis, shared by all controllers."""

from dataclasses import dataclass

from controller.access.addresses import ClientAddress
from controller.metrics import Metrics
from controller.store.keys import Keys
from controller.store.store import Store
from wire.errors import ApiError, ErrorCode


@dataclass(frozen=True)
class Rate:
    """How many requests a minute, and how many at once."""

    per_minute: int
    burst: int


@dataclass(frozen=True)
class Charge:
    """A request's place in a bucket, not yet taken.

    Dispatcher.reserve takes it in the script that reserves the leases: a round trip of its own to a store that writes
    to disk each time takes a millisecond.
    """

    bucket: str
    interval_us: int
    burst: int
    metrics: Metrics

    def settle(self, wait_us: int) -> None:
        """Count what the store decided. Raises ApiError RATE_LIMITED unless `wait_us`, the time to wait, is 0."""
        self.metrics.rate_limit.labels("refused" if wait_us else "allowed").inc()
        if wait_us:
            raise ApiError(
                ErrorCode.RATE_LIMITED, "Too many requests. Wait a moment.", retry_after_s=max(1.0, wait_us / 1e6)
            )


class RateLimiter:
    """The limits of one arena: one rate for clients on loopback, one for all others."""

    def __init__(self, store: Store, keys: Keys, metrics: Metrics, *, rate: Rate, local_rate: Rate) -> None:
        self._store = store
        self._keys = keys
        self._metrics = metrics
        self._rate = rate
        self._local_rate = local_rate

    def charge(self, client: ClientAddress, kind: str) -> Charge:
        """A charge on the bucket of this client and this `kind` of request."""
        rate = self._local_rate if client.is_local else self._rate
        bucket = self._keys.rate(kind, client.identity)
        return Charge(bucket, round(60e6 / rate.per_minute), rate.burst, self._metrics)

    async def check(self, client: ClientAddress, kind: str) -> None:
        """Take a place now. Raises ApiError RATE_LIMITED or STORE_UNAVAILABLE."""
        charge = self.charge(client, kind)
        charge.settle(await self._store.run("check_rate", [charge.bucket], charge.interval_us, charge.burst))
