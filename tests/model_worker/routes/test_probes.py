from collections.abc import Callable
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from model_worker.echo_engine import EchoEngine

Serve = Callable[..., Any]
Body = Callable[..., dict[str, Any]]


def samples(text: str) -> dict[str, float]:
    """Sums over all labels but layer type, state, reason and code."""
    totals: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            kept = sorted(f"{key}={value}" for key, value in sample.labels.items() if key not in ("model_name", "le"))
            name = sample.name + (f"[{','.join(kept)}]" if kept else "")
            totals[name] = totals.get(name, 0.0) + sample.value
    return totals


async def test_ready_worker_says_so(serve: Serve) -> None:
    async with serve() as served:
        assert (await served.client.get("/health")).json() == {"status": "ok", "state": "ready"}
        assert (await served.client.get("/ready")).json() == {"state": "ready"}


async def test_draining_worker_is_alive_but_not_ready(serve: Serve) -> None:
    async with serve() as served:
        served.models.begin_draining()
        assert (await served.client.get("/health")).status_code == 200
        ready = await served.client.get("/ready")
    assert (ready.status_code, ready.json()) == (503, {"state": "draining"})


async def test_dead_engine_is_neither_alive_nor_ready(serve: Serve) -> None:
    async with serve() as served:
        await served.engine.shutdown()
        assert (await served.client.get("/health")).status_code == 503
        assert (await served.client.get("/ready")).status_code == 503


async def test_metrics_count_what_happened(serve: Serve, chat_body: Body) -> None:
    async with serve() as served:
        await served.client.post("/v1/chat/completions", json=chat_body())
        await served.client.post("/v1/chat/completions", json=chat_body(max_tokens=2))
        await served.client.post("/v1/chat/completions", json=chat_body("word " * 5000))
        totals = samples((await served.client.get("/metrics")).text)
    assert totals["agon_requests_finished_total[finished_reason=stop]"] == 1
    assert totals["agon_requests_finished_total[finished_reason=length]"] == 1
    assert totals["agon_requests_failed_total[code=context_length_exceeded]"] == 1
    assert totals["agon_generation_tokens_total"] == 6
    assert totals["agon_prompt_tokens_total"] == 8
    assert totals["agon_time_to_first_token_seconds_count"] == 2
    assert totals["agon_inter_token_seconds_count"] == 4
    assert totals["agon_request_seconds_count"] == 2
    assert totals["agon_queue_seconds_count"] == 2
    assert totals["agon_requests_running"] == totals["agon_requests_waiting"] == 0
    assert totals["agon_kv_pages[layer_type=echo,state=used]"] == 0
    assert totals["agon_kv_bytes[state=empty]"] > 0
    assert totals["agon_engine_steps_total"] == 6


async def test_metrics_carry_the_names_that_gateways_know(serve: Serve, chat_body: Body) -> None:
    async with serve() as served:
        await served.client.post("/v1/chat/completions", json=chat_body())
        totals = samples((await served.client.get("/metrics")).text)
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "num_preemptions_total"):
        assert f"vllm:{name}" in totals
    assert totals["vllm:request_success_total[finished_reason=stop]"] == 1
    assert totals["vllm:time_to_first_token_seconds_count"] == 1
    assert totals["vllm:inter_token_latency_seconds_count"] == totals["agon_inter_token_seconds_count"] == 3


async def test_two_workers_in_one_process_count_apart(serve: Serve, chat_body: Body) -> None:
    async with serve() as first, serve() as second:
        await first.client.post("/v1/chat/completions", json=chat_body())
        totals = samples((await second.client.get("/metrics")).text)
    assert totals["agon_request_seconds_count"] == 0


async def test_version_is_told_to_users(serve: Serve) -> None:
    async with serve(EchoEngine()) as served:
        assert (await served.client.get("/version")).json()["version"]
