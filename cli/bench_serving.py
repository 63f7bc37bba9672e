"""Load against any server with the OpenAI API: so many requests in flight, each replaced when it has finished.

Times are seen from the client: the first token (TTFT), the time per token after it (TPOT), whole answers, and the
tokens of all requests over the wall clock. Prompts differ from one another, so that no cache of prefixes helps.
"""

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from cli.bench_record import PERCENTS, percentile
from cli.errors import CliError
from cli.openai_client import stream_chat
from wire.chat import ChatMessage

_SYLLABLES = ("ba", "de", "ki", "lo", "mu", "na", "pe", "ri", "so", "tu", "ve", "wa")


@dataclass(frozen=True, slots=True)
class Answered:
    """One request; `error` is set when it failed, and then the times mean nothing."""

    ttft_s: float = 0.0
    total_s: float = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0
    error: str | None = None

    @property
    def tpot_s(self) -> float | None:
        return (self.total_s - self.ttft_s) / (self.output_tokens - 1) if self.output_tokens > 1 else None


@dataclass(frozen=True, slots=True)
class Load:
    """What to send. `ignore_eos` makes every answer as long as asked; servers that refuse it need False."""

    model: str
    num_requests: int
    prompt_words: int
    output_len: int
    ignore_eos: bool = True
    seed: int = 0


async def run_load(client: httpx.AsyncClient, load: Load, concurrency: int) -> dict[str, Any]:
    """One row of the report."""
    prompts = _prompts(load)
    answers: list[Answered] = []

    async def keep_busy() -> None:
        for prompt in prompts:  # shared: whoever is free takes the next
            answers.append(await _ask(client, load, prompt))

    started = time.perf_counter()
    await asyncio.gather(*(keep_busy() for _ in range(concurrency)))
    return _row(answers, concurrency, time.perf_counter() - started)


def _prompts(load: Load) -> Iterator[str]:
    generator = random.Random(load.seed)
    for _ in range(load.num_requests):
        words = ("".join(generator.choices(_SYLLABLES, k=2)) for _ in range(load.prompt_words))
        yield " ".join(words)


async def _ask(client: httpx.AsyncClient, load: Load, prompt: str) -> Answered:
    started = time.perf_counter()
    first: float | None = None
    usage: dict[str, int] = {}
    messages = (ChatMessage(role="user", content=prompt),)
    options = {"max_tokens": load.output_len, "temperature": 0.0, "ignore_eos": load.ignore_eos or None}
    try:
        async for chunk in stream_chat(client, load.model, messages, **options):
            if first is None and any(choice["delta"].get("content") for choice in chunk["choices"]):
                first = time.perf_counter()
            usage = chunk.get("usage") or usage
    except CliError as error:
        return Answered(error=str(error))
    ended = time.perf_counter()
    if first is None or not usage:
        return Answered(error="the answer had no text" if usage else "the server sent no usage")
    return Answered(first - started, ended - started, usage["prompt_tokens"], usage["completion_tokens"])


def _row(answers: Sequence[Answered], concurrency: int, wall_s: float) -> dict[str, Any]:
    good = [answer for answer in answers if answer.error is None]
    errors = [answer.error for answer in answers if answer.error is not None]
    tpot = [answer.tpot_s for answer in good if answer.tpot_s is not None]
    return {
        "concurrency": concurrency,
        "requests": len(answers),
        "failed": len(errors),
        "first_error": errors[0] if errors else None,
        "wall_s": round(wall_s, 3),
        "output_tokens_per_s": round(sum(answer.output_tokens for answer in good) / wall_s, 1),
        "prompt_tokens": sum(answer.prompt_tokens for answer in good),
        "output_tokens": sum(answer.output_tokens for answer in good),
        **_percentiles("ttft_ms", [answer.ttft_s for answer in good]),
        **_percentiles("tpot_ms", tpot),
        **_percentiles("total_ms", [answer.total_s for answer in good]),
    }


def _percentiles(name: str, seconds: Sequence[float]) -> dict[str, float | None]:
    if not seconds:
        return {f"{name}_p{percent}": None for percent in PERCENTS}
    return {f"{name}_p{percent}": round(percentile(seconds, percent) * 1000, 2) for percent in PERCENTS}
