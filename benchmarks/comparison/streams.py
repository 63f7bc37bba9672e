"""Tokens per second and time to first token at several numbers of concurrent streams, through the controller."""

import asyncio
import json
import statistics
import time
from dataclasses import asdict, dataclass
from typing import Any

import httpx

PROMPT_CHARS = 112  #: with one token per byte and the chat template's own tokens: about 128 tokens in
OUTPUT_TOKENS = 64


@dataclass(frozen=True)
class StreamFigures:
    """One row: `num_streams` identical clients started together."""

    num_streams: int
    prompt_tokens: int
    output_tokens_per_s: float
    ttft_p50_ms: float
    ttft_max_ms: float
    tpot_p50_ms: float


def measure_streams(url: str, model: str, counts: tuple[int, ...] = (1, 16, 32)) -> list[dict[str, Any]]:
    return [asdict(asyncio.run(_measure(url, model, count))) for count in counts]


async def _measure(url: str, model: str, num_streams: int) -> StreamFigures:
    limits = httpx.Limits(max_connections=num_streams)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as client:
        await _one_stream(client, model, "warm up")
        started = time.perf_counter()
        results = await asyncio.gather(*(_one_stream(client, model, f"stream {i}") for i in range(num_streams)))
        elapsed = time.perf_counter() - started
    tokens = sum(tokens for _, _, tokens, _ in results)
    ttft = [1e3 * first for first, _, _, _ in results]
    tpot = [1e3 * (last - first) / (tokens - 1) for first, last, tokens, _ in results if tokens > 1]
    return StreamFigures(
        num_streams=num_streams,
        prompt_tokens=results[0][3],
        output_tokens_per_s=round(tokens / elapsed, 1),
        ttft_p50_ms=round(statistics.median(ttft), 1),
        ttft_max_ms=round(max(ttft), 1),
        tpot_p50_ms=round(statistics.median(tpot), 2),
    )


async def _one_stream(client: httpx.AsyncClient, model: str, salt: str) -> tuple[float, float, int, int]:
    """Seconds to the first and to the last text, and the server's counts of output and input tokens."""
    prompt = (f"{salt}: " + "the quick brown fox jumps over the lazy dog " * 4)[:PROMPT_CHARS]
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": OUTPUT_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    started = time.perf_counter()
    first = last = 0.0
    usage: dict[str, int] = {}
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line.removeprefix("data: "))
            usage = chunk.get("usage") or usage
            if chunk["choices"] and chunk["choices"][0]["delta"].get("content"):
                last = time.perf_counter() - started
                first = first or last
    return first, last, usage["completion_tokens"], usage["prompt_tokens"]
