"""Cost of page operations: python -m benchmarks.memory.operations

Microseconds per page for allocate, free, publish, match and evict in pools of 1,000 to 100,000 pages (they should not
differ), and milliseconds of memory work per decode step of 256 running requests. Prints one JSON object.
"""

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.memory.experiments import layers_of
from cli.bench.record import commit, machine
from engine.memory.kv_cache import KVCache
from engine.memory.planning.designs import Design, lcm_design
from engine.memory.planning.planner import choose_design
from engine.memory.spec import LayerSpec, PoolPlan

PAGE_TOKENS = 16
NUM_REQUESTS = 256
NUM_REPEATS = 5


def page_costs(num_pages: int) -> dict[str, float]:
    """Best of several runs, each in a cache of its own."""
    runs = [_page_costs(num_pages) for _ in range(max(3, 30_000 // num_pages))]
    return {name: round(min(run[name] for run in runs), 3) for name in runs[0]}


def _page_costs(num_pages: int) -> dict[str, float]:
    """One attention type; sequences of 50 pages until the pool is full, one in each step."""
    layers = [LayerSpec("full", 64, "bfloat16")]
    design = lcm_design(layers, page_tokens=PAGE_TOKENS)
    cache = KVCache(PoolPlan(design.types, design.large_page_bytes, num_pages + 1))
    per_sequence, size = 50, 50 * PAGE_TOKENS
    count = num_pages // per_sequence
    texts = [[index] * size for index in range(2 * count)]
    total = count * per_sequence

    def per_page(action: Callable[[int], object], first: int = 0) -> float:
        start = time.process_time()
        for index in range(first, first + count):
            action(index)
        return 1e6 * (time.process_time() - start) / total

    for index in range(2 * count):
        cache.open(index, index)
        cache.admit(index, texts[index], 0, [1])

    def allocate(index: int) -> None:
        cache.begin_step(index)
        assert cache.extend(index, 0, size) is not None

    costs = {"allocate_us": per_page(allocate)}
    costs["publish_us"] = per_page(lambda index: cache.advance(index, texts[index], size))
    costs["free_us"] = per_page(cache.free)
    costs["match_us"] = per_page(lambda index: cache.match(index, texts[index], size))
    costs["evict_and_allocate_us"] = per_page(allocate, count)
    return costs


def step_ms(model: str) -> dict[str, float]:
    """Decode steps of 256 requests with 500 to 1,000 tokens each: mean and worst of 64 steps, in the best of several
    runs."""
    layers = layers_of(model)
    design = choose_design(layers, page_tokens=PAGE_TOKENS)
    runs = [_step_times(design) for _ in range(NUM_REPEATS)]
    return {
        "page_tables": design.num_page_tables,
        "mean_ms": round(min(map(statistics.mean, runs)), 3),
        "worst_ms": round(min(map(max, runs)), 3),
    }


def _step_times(design: Design) -> list[float]:
    num_large_pages = sum(-(-NUM_REQUESTS * 70 // design.ratio(kind)) for kind in design.types) + 1
    cache = KVCache(PoolPlan(design.types, design.large_page_bytes, num_large_pages), max_step_tokens=2048)
    lengths = [500 + 7 * index % 500 for index in range(NUM_REQUESTS)]
    texts = [[index + 1] * 1100 for index in range(NUM_REQUESTS)]
    for index, length in enumerate(lengths):
        cache.open(index, index)
        cache.admit(index, texts[index], 0, [1])
        start = 0
        while start < length:
            end = cache.chunk_end(start, length)
            assert cache.extend(index, start, end) is not None
            cache.advance(index, texts[index], end)
            start = end
    times = []
    for step in range(64):
        start_s = time.process_time()
        cache.begin_step(step + 1)
        for index in range(NUM_REQUESTS):
            position = lengths[index] + step
            assert cache.extend(index, position, position + 1) is not None
            cache.advance(index, texts[index], position + 1)
        times.append(1e3 * (time.process_time() - start_s))
    return times


def measure() -> dict[str, Any]:
    models = (
        "llama-3.1-8b",
        "gemma-2-9b",
        "ministral-8b",
        "gemma-3-12b",
        "gemma-3-27b",
        "jamba-1.5-mini",
        "llama-3.1-8b-pyramidkv",
        "gemma-2-27b-with-2b-draft",
    )
    return {
        "per_page": {str(num_pages): page_costs(num_pages) for num_pages in (1_000, 10_000, 100_000)},
        "step_of_256_requests": {model: step_ms(model) for model in models},
    }


def main() -> None:
    report = {
        "benchmark": "memory operations",
        "commit": commit(),
        "machine": machine(),
        **measure(),
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
