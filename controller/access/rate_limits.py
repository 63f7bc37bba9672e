"""Rate limits per address, for requests that cost something: GCRA buckets in Redis, shared by all controllers. A
completion that the store does not answer is limited by what its controller remembers of the bucket."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from controller.access.addresses import ClientAddress
from controller.access.rate_headers import Remaining
from controller.metrics import Metrics
from controller.store.keys import Keys
from controller.store.store import Store
from service_kit.buckets import BucketMemory
from wire.admin import RateInForce
from wire.errors import ApiError, ErrorCode


@dataclass(frozen=True)
class Rate:
    """How many requests a minute, and how many at once."""

    per_minute: int
    burst: int


@dataclass(frozen=True)
class Charge:
    """One request to be counted in a bucket; it is not counted yet.

    Dispatcher.reserve takes it in the script that reserves the leases: a round trip of its own to a store that writes
    to disk each time takes a millisecond.
    """

    bucket: str
    interval_us: int
    burst: int
    metrics: Metrics
    note_refusal: Callable[[], None]
    memory: BucketMemory
    tell: Callable[[Remaining], None]  #: called with what remains, whether the request is allowed or not

    def settle(self, wait_us: int, filled_us: int) -> None:
        """Count the store's decision. Raises ApiError RATE_LIMITED unless `wait_us`, the time to wait, is 0.

        `filled_us`: the time after which the bucket is empty, if no request comes.
        """
        self.memory.note(self.bucket, filled_us)
        self._settle(wait_us, filled_us)

    def settle_alone(self) -> None:
        """Decide without the store, by what this controller knows of the bucket. Raises ApiError RATE_LIMITED."""
        self._settle(*self.memory.take(self.bucket, self.interval_us, self.burst))

    def _settle(self, wait_us: int, filled_us: int) -> None:
        num_left = (self.interval_us * self.burst - filled_us) // self.interval_us
        self.tell(Remaining(limit=self.burst, requests=max(0, num_left), reset_us=filled_us))
        self.metrics.rate_limit.labels("refused" if wait_us else "allowed").inc()
        if wait_us:
            self.note_refusal()
            raise ApiError(
                ErrorCode.RATE_LIMITED, "Too many requests. Wait a moment.", retry_after_s=max(1.0, wait_us / 1e6)
            )


@dataclass(frozen=True)
class Rates:
    """The limits of one arena for one address. `votes` holds on loopback too: a process on this machine may cast votes
    for a crowd that does not exist."""

    requests: Rate  #: of each other kind
    battles: Rate  #: new battles
    votes: Rate
    local: Rate  #: of each kind but votes, for processes on this machine

    def in_force(self) -> tuple[RateInForce, ...]:
        """All limits, for the administrator."""
        named = (("battle", self.battles), ("vote", self.votes), ("other", self.requests), ("local", self.local))
        return tuple(RateInForce(kind=kind, per_minute=rate.per_minute, burst=rate.burst) for kind, rate in named)

    def of(self, client: ClientAddress, kind: str) -> Rate:
        """The rate of requests of `kind` from `client`."""
        if kind == "vote":
            return self.votes
        if client.is_local:
            return self.local
        return self.battles if kind == "battle" else self.requests


def _forget(_: Remaining) -> None:
    """Routes without headers of their limit."""


class RateLimiter:
    """Counts the requests of each address in buckets of the store. `note_refusal` is told the kind of each request that
    is refused."""

    def __init__(
        self, store: Store, keys: Keys, metrics: Metrics, rates: Rates, note_refusal: Callable[[str], None]
    ) -> None:
        self._store = store
        self._keys = keys
        self._metrics = metrics
        self._rates = rates
        self._note_refusal = note_refusal
        self._memory = BucketMemory()

    def charge(self, client: ClientAddress, kind: str, tell: Callable[[Remaining], None] = _forget) -> Charge:
        """A charge to the bucket of this client and this `kind` of request. `tell` gets what remains."""
        rate = self._rates.of(client, kind)
        # One bucket, one rate: loopback is also the address of proxies that are not trusted, and of a local browser.
        bucket = self._keys.rate(kind, "local" if rate is self._rates.local else client.identity)
        refused = partial(self._note_refusal, kind)
        interval_us = round(60e6 / rate.per_minute)
        return Charge(bucket, interval_us, rate.burst, self._metrics, refused, self._memory, tell)

    async def check(
        self,
        client: ClientAddress,
        kind: str,
        tell: Callable[[Remaining], None] = _forget,
        *,
        needs_store: bool = True,
    ) -> None:
        """Take a place now; `tell` gets what remains. Without `needs_store` this controller decides alone while the
        store does not answer. Raises ApiError RATE_LIMITED or STORE_UNAVAILABLE."""
        charge = self.charge(client, kind, tell)
        try:
            wait_us, filled_us = await self._store.run("check_rate", [charge.bucket], charge.interval_us, charge.burst)
        except ApiError:
            if needs_store:
                raise
            charge.settle_alone()
            return
        charge.settle(int(wait_us), int(filled_us))
