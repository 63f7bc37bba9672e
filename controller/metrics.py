"""The controller's Prometheus metrics, in a registry of its own.

No label names a visitor, a prompt, a battle, or the model of an answer: a counter that moves with one battle would tell
which model answered it.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

_LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The metric families of one controller; each is updated by the part that its name refers to."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        ProcessCollector(registry=registry)
        self.requests = Histogram(
            "arena_http_request_seconds",
            "Requests until the head of their answer, by the pattern of the route",
            ["method", "route", "status"],
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        )
        self.battles = Counter("arena_battles", "Battles by what became of them", ["outcome"], registry=registry)
        self.turns = Counter("arena_turns", "Turns by how they ended", ["result"], registry=registry)
        self.votes = Counter("arena_votes", "Votes by what the vote script said", ["result"], registry=registry)
        self.vote_commit = Histogram(
            "arena_vote_commit_seconds", "Time to a durable vote", buckets=_LATENCY_BUCKETS, registry=registry
        )
        self.votes_restored = Counter(
            "arena_votes_restored", "Votes brought back into the store from the journal", registry=registry
        )
        self.rating_lag = Gauge("arena_rating_lag_entries", "Votes not yet on the board", registry=registry)
        self.streams = Counter(
            "arena_stream_terminations", "Upstream streams by how they ended", ["reason"], registry=registry
        )
        self.failovers = Counter("arena_failovers", "Moves to another replica", ["phase"], registry=registry)
        self.first_token = Histogram(
            "arena_time_to_first_token_seconds",
            "As the controller sees it",
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        )
        self.workers = Gauge("arena_registry_workers", "Registered workers", ["model", "state"], registry=registry)
        self.redis_errors = Counter("arena_redis_errors", "Failed store operations", ["op"], registry=registry)
        self.store_replicas = Gauge("arena_store_replicas", "Replicas that follow the store", registry=registry)
        self.store_durable = Gauge(
            "arena_store_durable", "Whether the store keeps what it acknowledges, as far as it tells", registry=registry
        )
        self.wrong_credentials = Counter(
            "arena_wrong_credentials", "Requests with a credential that is not known", ["access"], registry=registry
        )
        self.rate_limit = Counter("arena_ratelimit", "Rate limit decisions", ["decision"], registry=registry)
        self.open_turns = Gauge("arena_open_turns", "Turns that this controller is running", registry=registry)

    def exposition(self) -> bytes:
        """All families in Prometheus' text format."""
        return generate_latest(self.registry)
