"""Latency of single requests through our engine, run as in a server: time to first token, times between tokens.

The engine has its own thread and tokens are handed to an event loop, so these are the times of a worker without HTTP.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from cli.bench.record import percentile
from cli.bench.workloads import Work
from engine.config import EngineConfig


@dataclass(frozen=True, slots=True)
class Stream:
    """Arrival times of the tokens of one answer, in seconds after the request. Tokens of one step have the same
    time."""

    token_times_s: tuple[float, ...]

    @property
    def ttft_s(self) -> float:
        """Time to the first token, in seconds."""
        return self.token_times_s[0]

    @property
    def tpot_s(self) -> float | None:
        """Mean time per token after the first, in seconds; None for a single token."""
        times = self.token_times_s
        return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None

    @property
    def gaps_s(self) -> list[float]:
        """Times between consecutive tokens, in seconds."""
        return [after - before for before, after in pairwise(self.token_times_s)]


async def measure(
    config: EngineConfig, work: Work, *, repeats: int, warm_ups: int, advance: Callable[[], None]
) -> tuple[str, list[Stream]]:
    """Run the answers one after another; returns the dtype that "auto" became, and one stream per repeat."""
    from engine import AsyncEngine

    engine = await AsyncEngine.from_config(config)
    try:
        streams = []
        for number in range(warm_ups + repeats):
            stream = await _stream(engine, work)
            if number >= warm_ups:
                streams.append(stream)
            advance()
        return engine.info.precision, streams
    finally:
        await engine.shutdown()


async def _stream(engine: Any, work: Work) -> Stream:
    from engine import SamplingParams

    params = SamplingParams(temperature=0.0, max_tokens=work.out, ignore_eos=True)
    started = time.perf_counter()
    times: list[float] = []
    async for delta in engine.generate(list(work.ids), params):
        now = time.perf_counter() - started
        times.extend([now] * len(delta.token_ids))
    return Stream(tuple(times))


def as_row(streams: Sequence[Stream], work: Work) -> dict[str, Any]:
    """The row of the report: medians over the repeats, percentiles over all gaps between tokens."""
    tpot = [stream.tpot_s for stream in streams if stream.tpot_s is not None]
    gaps = [gap for stream in streams for gap in stream.gaps_s]
    row: dict[str, Any] = {
        "prompt_tokens": len(work.ids),
        "output_tokens": work.out,
        "repeats": len(streams),
        "ttft_ms": _ms(statistics.median(stream.ttft_s for stream in streams)),
        "ttft_ms_all": [_ms(stream.ttft_s) for stream in streams],
    }
    if tpot:
        row["tpot_ms"] = _ms(statistics.median(tpot))
        row["tpot_ms_all"] = [_ms(value) for value in tpot]
        row["tokens_per_s"] = round(1 / statistics.median(tpot), 2)
        row |= {f"itl_ms_p{percent}": _ms(percentile(gaps, percent)) for percent in (50, 95, 99)}
    return row


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 3)
