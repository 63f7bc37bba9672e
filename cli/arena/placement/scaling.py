"""How many replicas a model should have for its load: the rule, without clock, network or processes.

A model gets one more replica when its requests have waited for some time, and one less when the others have had room
for all of them for a much longer time. Between the two thresholds nothing changes, and nothing changes while a replica
starts, because its share of the load is not known yet.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ScalingRule:
    """The thresholds. Times in seconds."""

    queued_tokens: int = 2048  #: prompt tokens in the queue of one replica above which it counts as busy
    first_token_s: float = 2.0  #: mean time to a first token above which replicas with a queue count as busy
    up_after_s: float = 10.0  #: busy for so long: one more
    down_after_s: float = 300.0  #: idle for so long: one less
    spare_share: float = 0.5  #: idle: the others would fill at most this share of their batches


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """What the controller says of one model; the figures are sums over the `num_ready` replicas that answer."""

    num_ready: int
    running: int = 0
    waiting: int = 0
    queued_tokens: int = 0
    max_running: int = 0  #: places in their batches
    first_token_s: float | None = None  #: mean of the last seconds over all models; None: no first token


@dataclass(slots=True)
class Scaling:
    """The state of one model: since when it has been busy or idle. Mutable; times are monotonic seconds."""

    rule: ScalingRule = field(default_factory=ScalingRule)
    _busy_since: float | None = None
    _idle_since: float | None = None

    def step(self, now_s: float, load: ModelLoad, replicas: int, least: int, most: int) -> int:
        """The number of replicas from now on: `replicas`, one more or one less, within `least` and `most`."""
        if not least <= replicas <= most:
            return max(least, min(most, replicas))
        if load.num_ready != replicas:  # one starts, ends or is broken: the figures are not those of `replicas`
            self._busy_since = self._idle_since = None
            return replicas
        self._busy_since = _since(self._busy_since, now_s, self._is_busy(load))
        self._idle_since = _since(self._idle_since, now_s, self._is_idle(load))
        if self._busy_since is not None and now_s - self._busy_since >= self.rule.up_after_s and replicas < most:
            self._busy_since = None
            return replicas + 1
        if self._idle_since is not None and now_s - self._idle_since >= self.rule.down_after_s and replicas > least:
            self._idle_since = None
            return replicas - 1
        return replicas

    def _is_busy(self, load: ModelLoad) -> bool:
        if load.queued_tokens > self.rule.queued_tokens * load.num_ready:
            return True
        is_slow = load.first_token_s is not None and load.first_token_s > self.rule.first_token_s
        return is_slow and load.waiting > 0

    def _is_idle(self, load: ModelLoad) -> bool:
        if load.num_ready < 2 or load.waiting or load.queued_tokens:
            return False
        places = load.max_running * (load.num_ready - 1) / load.num_ready
        return load.running <= self.rule.spare_share * places


def _since(since: float | None, now_s: float, holds: bool) -> float | None:
    """When a condition began to hold; None while it does not."""
    if not holds:
        return None
    return now_s if since is None else since
