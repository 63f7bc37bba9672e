"""Prometheus metrics of one worker process, in a registry of its own; the label `model_name` tells its models apart.

Counters and gauges of the engines are read from their loads at scrape time; histograms are observed by AnswerRecord.
Every family that vLLM also has is exported a second time under vLLM's name, so that existing dashboards, autoscalers
and gateways (the model-server protocol of the Kubernetes gateway-inference extension) work unchanged.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from model_worker.engine_protocol import Hosting
from wire.chat import FinishReason
from wire.workers import Capacity, Load

LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5)

#: our name -> vLLM's, for what means the same in both
_VLLM_NAMES = {
    "agon_requests_running": "vllm:num_requests_running",
    "agon_requests_waiting": "vllm:num_requests_waiting",
    "agon_requests_swapped": "vllm:num_requests_swapped",
    "agon_kv_usage_ratio": "vllm:kv_cache_usage_perc",
    "agon_prefix_cache_queries": "vllm:prefix_cache_queries",
    "agon_prefix_cache_hits": "vllm:prefix_cache_hits",
    "agon_preemptions": "vllm:num_preemptions",
    "agon_prompt_tokens": "vllm:prompt_tokens",
    "agon_generation_tokens": "vllm:generation_tokens",
    "agon_requests_finished": "vllm:request_success",
    "agon_time_to_first_token_seconds": "vllm:time_to_first_token_seconds",
    "agon_inter_token_seconds": "vllm:inter_token_latency_seconds",
    "agon_request_seconds": "vllm:e2e_request_latency_seconds",
    "agon_queue_seconds": "vllm:request_queue_time_seconds",
}


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """Where the figures of a model are read at every scrape. The callables return None until it has been loaded."""

    load: Callable[[], Load | None]
    capacity: Callable[[], Capacity | None]
    operators: Callable[[], str | None]
    is_resident: Callable[[], bool]
    hosting: Callable[[], Hosting | None]


class Metrics:
    """Owns the registry, and the figures of each model from `of` to `forget`."""

    def __init__(self) -> None:
        own = CollectorRegistry(auto_describe=False)
        label = ("model_name",)
        self.ttft = Histogram(
            "agon_time_to_first_token_seconds",
            "From the arrival of a request to its first token",
            label,
            buckets=LATENCY_BUCKETS,
            registry=own,
        )
        self.inter_token = Histogram(
            "agon_inter_token_seconds", "Between two tokens of an answer", label, buckets=TOKEN_BUCKETS, registry=own
        )
        self.request = Histogram(
            "agon_request_seconds", "Whole finished requests", label, buckets=LATENCY_BUCKETS, registry=own
        )
        self.queue = Histogram(
            "agon_queue_seconds", "From arrival to the first step", label, buckets=LATENCY_BUCKETS, registry=own
        )
        self.wake = Histogram(
            "agon_wake_seconds", "Until a sleeping model was in memory", label, buckets=LATENCY_BUCKETS, registry=own
        )
        self.finished = Counter(
            "agon_requests_finished", "Answers by reason of their end", (*label, "finished_reason"), registry=own
        )
        self.aborted = Counter("agon_requests_aborted", "Answers whose reader left before the end", label, registry=own)
        self.failed = Counter("agon_requests_failed", "Refusals and failures by code", (*label, "code"), registry=own)
        self._models: dict[str, ModelFigures] = {}
        own.register(_LoadCollector(self._models))
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_WithVllmNames(own))

    def of(self, model: str, figures: ModelFigures) -> "ModelMetrics":
        """The metrics of one model, which are shown until `forget`."""
        self._models[model] = figures
        return ModelMetrics(self, model)

    def forget(self, model: str) -> None:
        """Show the model's figures no longer."""
        self._models.pop(model, None)
        for family in (self.ttft, self.inter_token, self.request, self.queue, self.wake, self.aborted):
            family.remove(model)
        for family in (self.finished, self.failed):
            values = {
                sample.labels[name]
                for found in family.collect()
                for sample in found.samples
                if sample.labels["model_name"] == model
                for name in sample.labels
                if name != "model_name"
            }
            for value in values:
                family.remove(model, value)

    def render(self) -> bytes:
        """All families in Prometheus' text format."""
        return generate_latest(self._registry)


class ModelMetrics:
    """The metrics of one model of the process."""

    def __init__(self, families: Metrics, model: str) -> None:
        self._model = model
        self._families = families
        self._ttft = families.ttft.labels(model)
        self._inter_token = families.inter_token.labels(model)
        self._request = families.request.labels(model)
        self._queue = families.queue.labels(model)
        self._wake = families.wake.labels(model)
        self._aborted = families.aborted.labels(model)

    def observe_first_token(self, seconds: float) -> None:
        """Observe the time from the arrival of a request to its first token."""
        self._ttft.observe(seconds)

    def observe_queue(self, seconds: float) -> None:
        """Observe the time from the arrival of a request to its first step."""
        self._queue.observe(seconds)

    def observe_tokens(self, seconds: float, num_tokens: int) -> None:
        """`num_tokens` tokens arrived together, `seconds` after the previous ones."""
        for _ in range(num_tokens):
            self._inter_token.observe(seconds / num_tokens)

    def observe_wake(self, seconds: float) -> None:
        """Observe how long the model took to wake."""
        self._wake.observe(seconds)

    def count_finished(self, reason: FinishReason, seconds: float) -> None:
        """Count a complete answer and observe its total time."""
        self._families.finished.labels(self._model, reason).inc()
        self._request.observe(seconds)

    def count_aborted(self) -> None:
        """Count an answer whose client left before the end."""
        self._aborted.inc()

    def count_failed(self, code: str) -> None:
        """Count a request that was refused or an answer that failed."""
        self._families.failed.labels(self._model, code).inc()


class _LoadCollector(Collector):
    """The engines' own counters and gauges, read at scrape time."""

    def __init__(self, models: Mapping[str, ModelFigures]) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for model, figures in self._models.items():
            for family in _ModelFamilies(model).collect(figures):
                families.setdefault(family.name, _empty(family)).samples.extend(family.samples)
        yield from families.values()


def _empty(family: Metric) -> Metric:
    return Metric(family.name, family.documentation, family.type)


class _ModelFamilies:
    """The families of one model at one moment."""

    def __init__(self, model: str) -> None:
        self._model = model

    def collect(self, figures: ModelFigures) -> Iterator[Metric]:
        if (hosting := figures.hosting()) is not None:
            yield from self._hosting(hosting)
        load, capacity = figures.load(), figures.capacity()
        yield self._gauge("agon_model_loaded", "1 while the model is in memory", float(figures.is_resident()))
        if load is None or capacity is None:
            return
        if (name := figures.operators()) is not None:
            family = GaugeMetricFamily("agon_operators", "What computes", labels=("model_name", "operators"))
            family.add_metric((self._model, name), 1.0)
            yield family
        yield self._gauge("agon_requests_running", "Requests in the running batch", load.running)
        yield self._gauge("agon_requests_waiting", "Requests in the queue", load.waiting)
        yield self._gauge("agon_requests_swapped", "Waiting requests whose pages are in main memory", load.swapped)
        yield self._gauge("agon_queued_tokens", "Prompt tokens in the queue", load.queued_tokens)
        yield self._gauge("agon_tokens_per_second", "Recent generation speed", load.tokens_per_s)
        total = load.kv_bytes_total
        yield self._gauge(
            "agon_kv_usage_ratio", "Used share of the page pool", load.kv_bytes_used / total if total else 0
        )
        yield self._gauge("agon_kv_tokens", "Tokens that the page pool holds", capacity.kv_tokens)
        yield self._gauge(
            "agon_kv_saved_bytes", "Bytes that pages shared by several sequences save now", load.kv_bytes_saved
        )
        yield self._counter("agon_page_copies", "Shared pages copied on write", load.page_copies_total)
        yield from self._pages(load)
        yield self._counter("agon_prefix_cache_queries", "Prompt tokens looked up", load.prefix_query_tokens_total)
        yield self._counter("agon_prefix_cache_hits", "Prompt tokens found", load.prefix_hit_tokens_total)
        yield self._counter("agon_preemptions", "Requests put back into the queue", load.preemptions_total)
        yield from self._swap(load)
        yield self._counter("agon_prompt_tokens", "Prompt tokens taken in", load.prompt_tokens_total)
        yield self._counter("agon_generation_tokens", "Tokens generated", load.generation_tokens_total)
        yield self._counter("agon_engine_steps", "Engine steps", load.steps_total)
        yield from self._drafts(load)

    def _hosting(self, hosting: Hosting) -> Iterator[Metric]:
        failures = CounterMetricFamily(
            "agon_host_failures",
            "Failed requests to the server of a hosted model, those that were repeated included",
            labels=("model_name", "status", "reason"),
        )
        for (status, reason), count in hosting.failures.items():
            failures.add_metric((self._model, status, reason), count)
        yield failures
        yield self._gauge("agon_host_closed", "1 while a hosted model takes no request", float(hosting.is_closed))
        yield self._gauge("agon_host_tokens_today", "Tokens of a hosted model in this UTC day", hosting.tokens)
        yield self._gauge("agon_host_cost_today", "Cost of a hosted model in this UTC day", hosting.cost)

    def _pages(self, load: Load) -> Iterator[Metric]:
        pages = GaugeMetricFamily("agon_kv_pages", "Small pages", labels=("model_name", "layer_type", "state"))
        for counts in load.pages:
            for state, count in (("used", counts.used), ("evictable", counts.evictable), ("empty", counts.empty)):
                pages.add_metric((self._model, counts.layer_type, state), count)
        yield pages
        kv_bytes = GaugeMetricFamily("agon_kv_bytes", "Bytes of the page pool", labels=("model_name", "state"))
        empty = load.kv_bytes_total - load.kv_bytes_used - load.kv_bytes_evictable
        for state, size in (("used", load.kv_bytes_used), ("evictable", load.kv_bytes_evictable), ("empty", empty)):
            kv_bytes.add_metric((self._model, state), size)
        yield kv_bytes

    def _drafts(self, load: Load) -> Iterator[Metric]:
        """The names are vLLM's, after our prefix."""
        yield self._counter(
            "agon_spec_decode_num_drafts", "Verifications of proposed tokens", load.draft_proposals_total
        )
        yield self._counter(
            "agon_spec_decode_num_draft_tokens", "Proposed tokens that were verified", load.draft_tokens_total
        )
        yield self._counter(
            "agon_spec_decode_num_accepted_tokens", "Proposed tokens that were right", load.accepted_draft_tokens_total
        )
        yield self._counter(
            "agon_spec_decode_num_saved_steps", "Decode steps that answers did not need", load.saved_steps_total
        )

    def _swap(self, load: Load) -> Iterator[Metric]:
        by_kind = CounterMetricFamily(
            "agon_preemptions_by_kind", "Preemptions by what became of the pages", labels=("model_name", "kind")
        )
        by_kind.add_metric((self._model, "swap"), load.swap_preemptions_total)
        by_kind.add_metric((self._model, "recompute"), load.preemptions_total - load.swap_preemptions_total)
        yield by_kind
        mirror = GaugeMetricFamily(
            "agon_mirror_bytes", "Main memory for pages of swapped requests", labels=("model_name", "state")
        )
        mirror.add_metric((self._model, "used"), load.mirror_bytes_used)
        mirror.add_metric((self._model, "empty"), load.mirror_bytes_total - load.mirror_bytes_used)
        yield mirror
        yield self._counter("agon_swapped_bytes", "Bytes of pages moved out and in", load.swapped_bytes_total)

    def _gauge(self, name: str, documentation: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, documentation, labels=("model_name",))
        family.add_metric((self._model,), value)
        return family

    def _counter(self, name: str, documentation: str, value: float) -> Metric:
        family = CounterMetricFamily(name, documentation, labels=("model_name",))
        family.add_metric((self._model,), value)
        return family


class _WithVllmNames(Collector):
    def __init__(self, inner: CollectorRegistry) -> None:
        self._inner = inner

    def collect(self) -> Iterable[Metric]:
        for family in self._inner.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family
            alias = _VLLM_NAMES.get(family.name)
            if alias is not None:
                yield _renamed(family, alias)


def _renamed(family: Metric, name: str) -> Metric:
    twin = Metric(name, family.documentation, family.type)
    for sample in family.samples:
        twin.add_sample(name + sample.name.removeprefix(family.name), sample.labels, sample.value)
    return twin
