"""The experiments of docs/memory.md: plain numbers, all from the real page cache, most from the real scheduler."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.memory import traces
from benchmarks.memory.baselines import (
    ContiguousCache,
    NaiveKVCache,
    ReleaseOrderKVCache,
    StaticPartitionKVCache,
)
from benchmarks.memory.simulator import CostModel, Result, simulate
from benchmarks.memory.traces import TraceRequest, mean
from engine.memory.kv_cache import KVCache
from engine.memory.planning.designs import (
    Design,
    equal_page_design,
    lcm_design,
    live_bytes,
    max_page_design,
    uniform_design,
)
from engine.memory.planning.model_configs import CONFIGS
from engine.memory.planning.planner import choose_design, pool_of
from engine.memory.spec import LayerSpec, PoolPlan
from engine.models.stored_layers import layers_from_config

PAGE_TOKENS = 16
GIB = 2**30


def layers_of(name: str) -> tuple[LayerSpec, ...]:
    """What the layers store. Both states of Jamba in bfloat16, as in the paper; Agon keeps the ssm state in float32."""
    return tuple(
        replace(spec, bytes_per_token=spec.bytes_per_token // 2, dtype="bfloat16") if spec.part == "ssm" else spec
        for spec in layers_from_config(CONFIGS[name]).layers
    )


def designs_of(layers: tuple[LayerSpec, ...]) -> dict[str, Design]:
    return {
        "planner": choose_design(layers, page_tokens=PAGE_TOKENS),
        "lcm": lcm_design(layers, page_tokens=PAGE_TOKENS),
        "equal_page": equal_page_design(layers, page_tokens=PAGE_TOKENS),
        "max_page": max_page_design(layers, page_tokens=PAGE_TOKENS),
        "uniform": uniform_design(layers, page_tokens=PAGE_TOKENS),
    }


def serve(
    design: Design,
    layers: tuple[LayerSpec, ...],
    trace: list[TraceRequest],
    pool_bytes: int,
    *,
    cache_class: Callable[..., KVCache] = KVCache,
    max_step_tokens: int = 2048,
    enable_prefix_caching: bool = False,
    **options: Any,
) -> Result:
    cache = cache_class(
        pool_of(design, pool_bytes), max_step_tokens=max_step_tokens, enable_prefix_caching=enable_prefix_caching
    )
    return simulate(cache, layers, trace, max_step_tokens=max_step_tokens, **options)


def summary(result: Result) -> dict[str, float]:
    return {
        "waste": round(result.waste, 5),
        "decode_batch": round(result.mean_batch, 3),
        "steps": result.num_steps,
        "preemptions": result.num_preemptions,
        "output_tokens_per_s": round(result.num_output_tokens / result.time_s, 1),
        "hit_rate": round(result.hit_rate, 4),
    }


def memory_use() -> dict[str, Any]:
    """Share of reserved memory that holds tokens, and the batch it allows: contiguous reservation against pages
    (PagedAttention figures 2, 12 and 13), OPT-13B on 12 GiB of KV memory, ShareGPT-like and Alpaca-like lengths."""
    layers = tuple(LayerSpec("full", 2 * 40 * 128 * 2, "float16") for _ in range(40))
    design = uniform_design(layers, page_tokens=PAGE_TOKENS)
    cost = CostModel(weight_bytes=26e9, bytes_per_s=1.5e12, tokens_per_s=8_000)
    found: dict[str, Any] = {}
    for load, trace in {
        "sharegpt": traces.chats(300, 161, 338, rate_per_s=4.0, seed=1),
        "alpaca": traces.chats(1000, 19, 58, rate_per_s=30.0, seed=2),
    }.items():
        plan = pool_of(design, 12 * GIB)

        def final(sequence: int, trace: list[TraceRequest] = trace) -> tuple[int, int]:
            item = trace[sequence >> 8]
            return len(item.prompt), len(item.output)

        def power_of_two(sequence: int, final: Any = final) -> int:
            prompt, output = final(sequence)
            return int(prompt + (1 << (output - 1).bit_length()))

        reserves: dict[str, Callable[[int], int]] = {
            "max": lambda sequence: 4096,
            "power_of_two": power_of_two,
            "oracle": lambda sequence, final=final: sum(final(sequence)),  # type: ignore[misc]
        }
        found[load] = {
            name: summary(simulate(ContiguousCache(plan, reserve), layers, trace, cost=cost, sample_every=3))
            for name, reserve in reserves.items()
        }
        cache = KVCache(plan, enable_prefix_caching=False, max_step_tokens=2048)
        found[load]["paged"] = summary(simulate(cache, layers, trace, cost=cost, sample_every=3))
    return found


def waste_by_page_size() -> dict[str, Any]:
    """Waste of plain paging on ShareGPT-like and Alpaca-like chats, Llama-3.1-8B, by tokens per page."""
    layers = layers_of("llama-3.1-8b")
    found: dict[str, Any] = {}
    for load, trace in {
        "sharegpt": traces.chats(200, 161, 338, seed=3),
        "alpaca": traces.chats(400, 19, 58, seed=4),
        "mmlu_pro": traces.chats(200, 1000, 20, sigma=0.5, seed=5),
    }.items():
        for page_tokens in (1, 8, 16, 32, 64, 128):
            design = uniform_design(layers, page_tokens=page_tokens)
            result = serve(design, layers, trace, 8 * GIB, sample_every=5)
            found.setdefault(load, {})[str(page_tokens)] = round(result.waste, 5)
    return found


def long_documents() -> tuple[dict[str, Any], dict[str, Result]]:
    """20 questions on documents of 55,000 to 110,000 tokens, Ministral-8B, 39.5 GiB (Jenga figures 15 and 16)."""
    layers = layers_of("ministral-8b")
    trace = traces.long_documents(20)
    pool_bytes = 24_000 * 27 * 16 * 4096
    results = {
        name: serve(design, layers, trace, pool_bytes, max_step_tokens=8192)
        for name, design in designs_of(layers).items()
    }
    results["static_partition"] = serve(
        designs_of(layers)["planner"],
        layers,
        trace,
        pool_bytes,
        max_step_tokens=8192,
        cache_class=StaticPartitionKVCache,
    )
    return {name: summary(result) for name, result in results.items()}, results


def chat_waste() -> dict[str, Any]:
    """Short chats on Gemma-3-27B by design, and allocation that knows requests against one that does not."""
    layers = layers_of("gemma-3-27b")
    trace = traces.chats(150, 161, 338, sigma=0.8, rate_per_s=6.0, seed=6)
    designs = designs_of(layers)
    cost = CostModel(weight_bytes=54e9, tokens_per_s=9_000)
    found = {}
    for name in ("planner", "lcm", "equal_page", "max_page"):
        result = serve(designs[name], layers, trace, 40 * GIB, cost=cost, sample_every=10)
        found[name] = summary(result)
    naive = serve(designs["lcm"], layers, trace, 40 * GIB, cost=cost, sample_every=10, cache_class=NaiveKVCache)
    found["lcm_naive"] = summary(naive)
    for name, kind in (("lcm", KVCache), ("lcm_naive", NaiveKVCache)):
        result = serve(designs["lcm"], layers, trace, 8 * GIB, cost=cost, sample_every=5, cache_class=kind)
        found[f"{name}_in_8_gib"] = summary(result)
    return found


def hit_rates() -> dict[str, Any]:
    """Prefix hit rates, ours against eviction in the order of release: shared articles and random conversations."""
    found: dict[str, Any] = {}
    for model in ("gemma-3-12b", "jamba-1.5-mini"):
        layers = layers_of(model)
        designs = designs_of(layers)
        plans = {
            "aligned": (KVCache, designs["planner"]),
            "release_order": (ReleaseOrderKVCache, designs["planner"]),
            "equal_page_release_order": (ReleaseOrderKVCache, designs["equal_page"]),
        }
        reserve = 2 * designs["planner"].held_bytes(5000)
        for num_articles in (2, 4, 8, 12, 16, 24):
            trace = traces.shared_articles(num_articles, 100, article_tokens=4000)
            pool = 8 * live_bytes(layers, 4000) + reserve
            for name, (kind, design) in plans.items():
                rate = _hit_rate(kind, design, layers, trace, pool)
                found.setdefault(model, {}).setdefault("articles", {}).setdefault(name, {})[str(num_articles)] = rate
        trace = traces.sessions(16, 100, first_tokens=2500, turn_tokens=100, answer_tokens=60)
        for share in (0.25, 0.5, 0.75, 1.0, 1.5, 2.5):
            pool = int(16 * share * live_bytes(layers, 3500)) + reserve
            for name, (kind, design) in plans.items():
                rate = _hit_rate(kind, design, layers, trace, pool)
                found.setdefault(model, {}).setdefault("sessions", {}).setdefault(name, {})[str(share)] = rate
    return found


def _hit_rate(
    kind: Callable[..., KVCache], design: Design, layers: tuple[LayerSpec, ...], trace: list[TraceRequest], pool: int
) -> float:
    result = serve(design, layers, trace, pool, cache_class=kind, enable_prefix_caching=True, sample_every=1000)
    return round(result.hit_rate, 4)


def vision() -> dict[str, Any]:
    """Questions on images, Llama-3.2-11B-Vision, 16 GiB: image tokens in the 8 cross-attention layers only, or in all
    40 as one page table keeps them; and how many images must be encoded where their pages can be found again."""
    layers = layers_of("llama-3.2-11b-vision")
    trace = traces.vision_chats(120)
    found = {}
    for name, design in designs_of(layers).items():
        if name not in ("planner", "lcm", "uniform"):
            continue
        cache = KVCache(pool_of(design, 16 * GIB), max_step_tokens=2048)
        requests = traces.images_as_text(trace) if name == "uniform" else trace
        result = simulate(cache, layers, requests, max_step_tokens=2048, sample_every=10)
        found[name] = {
            **summary(result),
            "encoded_images": "-" if name == "uniform" else cache.counters.num_encoded_images,
        }
    return found


def arena() -> dict[str, Any]:
    """One side of an arena's battles on Gemma-3-12B: batch, tokens per second and hit rate by design, 2 GiB."""
    layers = layers_of("gemma-3-12b")
    trace = traces.battles(60, rate_per_s=4.0)
    return {
        name: summary(
            serve(design, layers, trace, 2 * GIB, enable_prefix_caching=True, sample_every=10, cost=CostModel(24e9))
        )
        for name, design in designs_of(layers).items()
        if name in ("planner", "lcm", "equal_page")
    }


def sharing() -> dict[str, Any]:
    """Pages saved by forks, as a share of those without sharing (PagedAttention figure 15), from the real cache."""
    found: dict[str, Any] = {}
    for load, mean_prompt, mean_output in (("alpaca", 19, 58), ("sharegpt", 161, 338)):
        items = traces.chats(25, mean_prompt, mean_output, sigma=0.7, seed=7)
        for width in (2, 4, 6):
            parallel = mean([_saving(item, width, is_beam=False) for item in items])
            beam = mean([_saving(item, width, is_beam=True) for item in items])
            found.setdefault(load, {})[str(width)] = {"parallel": round(parallel, 4), "beam": round(beam, 4)}
    return found


def _saving(item: TraceRequest, width: int, *, is_beam: bool) -> float:
    """Mean over all steps. Beams: each successor's parent is drawn with weights halving from rank to rank."""
    layer = LayerSpec("full", 1024, "float16")
    design = uniform_design([layer], page_tokens=PAGE_TOKENS)
    cache = KVCache(PoolPlan(design.types, design.large_page_bytes, 4000), enable_prefix_caching=False)
    rng = random.Random(len(item.prompt))
    prompt = len(item.prompt)
    tokens = [0] * (prompt + len(item.output))
    cache.open(0, 0)
    cache.admit(0, tokens, 0, [prompt])
    cache.extend(0, 0, prompt)
    cache.advance(0, tokens, prompt)
    next_id, beams = width, list(range(width))
    for other in beams[1:]:
        cache.open(other, 0)
        cache.fork(0, other)
    shared = unshared = 0
    for length in range(prompt + 1, prompt + len(item.output) + 1):
        for sequence in beams:
            cache.extend(sequence, length - 1, length)
            cache.advance(sequence, tokens, length)
        shared += cache.pools[0].num_used
        unshared += width * -(-length // PAGE_TOKENS)
        if is_beam:
            parents = rng.choices(beams, [0.5**rank for rank in range(width)], k=width)
            successors = []
            for parent in sorted(set(parents), key=beams.index):
                successors.append(parent)
                for _ in range(parents.count(parent) - 1):
                    cache.open(next_id, 0)
                    cache.fork(parent, next_id)
                    successors.append(next_id)
                    next_id += 1
            for loser in set(beams) - set(successors):
                cache.close(loser)
            beams = successors
    return 1 - shared / unshared
