"""What proposed tokens gain and cost: the demo model raven without, with n-grams and with finch as its draft model, in
turns in one process. Milliseconds per output token and time against the engines without, by load.

    python -m benchmarks.drafts --json benchmarks/results/drafts.json

Every engine gives the same tokens, which is checked. Three loads: answers that copy from their prompt, questions of the
demo, and streams of random tokens, for which nothing can be proposed that is right. There are two engines without
proposals: what they differ by is the noise of the measurement. Turns are one batch of requests each, in an order drawn
anew for each batch. A round is all batches of a load; the first one is not counted. The account of what proposals may
lose (engine/drafts/payoff.py) is kept from load to load, as a served engine keeps it.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.bench.record import commit, machine
from engine.llm import LLM
from engine.sampling_params import SamplingParams

TARGET, DRAFT = "demo_models/raven", "demo_models/finch"
WITHOUT, AGAIN = "without", "without again"
SYSTEMS: dict[str, str | None] = {WITHOUT: None, AGAIN: None, "ngram": "ngram", "finch": DRAFT}
QUESTIONS = (
    "Tell me a short story.",
    "What is the capital of France?",
    "What is 17 + 25?",
    "Spell the word house.",
    "Count from 3 to 12.",
    "Hello! How are you?",
    "How many grams are in 3 kilograms?",
    "What do you know about the moon?",
)
LISTS = (
    "apples, pears, plums, cherries",
    "one red house, two green trees, three blue cars",
    "north, east, south, west",
    "Monday, Tuesday, Wednesday, Thursday",
)


#: Least number of rounds, whatever they take.
MIN_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Load:
    """Requests that are given to an engine, `at_once` at a time."""

    name: str
    prompts: Sequence[Sequence[int]]
    params: SamplingParams
    at_once: int

    @property
    def batches(self) -> list[list[list[int]]]:
        """The prompts of each turn."""
        firsts = range(0, len(self.prompts), self.at_once)
        return [[list(prompt) for prompt in self.prompts[first : first + self.at_once]] for first in firsts]


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the result there")
    parser.add_argument("--seconds", type=float, default=45.0, help="of each load, of all engines together")
    arguments = parser.parse_args()
    engines = {
        name: LLM(TARGET, draft=draft, kv_cache_bytes=96 << 20, enable_prefix_caching=False)
        for name, draft in SYSTEMS.items()
    }
    rows: list[dict[str, Any]] = []
    for load in _loads(engines[WITHOUT]):
        measured = _measure(engines, load, arguments.seconds)
        print(*map(json.dumps, measured), sep="\n", flush=True)
        rows += measured
    if arguments.json is not None:
        result = {"benchmark": "drafts", "commit": commit(), "machine": machine(), "rows": rows}
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _loads(llm: LLM) -> list[Load]:
    tokenizer = llm.tokenizer

    def chat(text: str) -> list[int]:
        return tokenizer.render_chat([{"role": "user", "content": text}])

    numbers = random.Random(1)
    noise = [[numbers.randrange(5, 2048) for _ in range(64)] for _ in range(32)]
    greedy = SamplingParams(temperature=0.0, max_tokens=160, ignore_eos=True)
    copies = [chat(f"Please repeat this list again and again: {text}, {text}, {text}.") for text in LISTS]
    questions = [chat(text) for text in QUESTIONS]
    usual = SamplingParams(temperature=0.7, top_p=0.95, seed=7, max_tokens=160)
    flat = SamplingParams(temperature=1.5, seed=7, max_tokens=128, ignore_eos=True)
    return [
        Load("copies, greedy, 1 stream", copies, greedy, 1),
        Load("copies, greedy, 4 streams", copies, greedy, 4),
        Load("questions, greedy, 1 stream", questions, SamplingParams(temperature=0.0, max_tokens=160), 1),
        Load("questions, sampled, 1 stream", questions, usual, 1),
        Load("questions, sampled, 8 streams", questions, usual, 8),
        Load("random tokens, sampled, 1 stream", noise[:3], flat, 1),
        Load("random tokens, sampled, 32 streams", noise, flat, 32),
    ]


def _measure(engines: dict[str, LLM], load: Load, seconds: float) -> list[dict[str, Any]]:
    """One row for each engine. Ratios are those of one round each, against the mean of the two engines without."""
    order, batches = random.Random(2), load.batches
    _round(engines, load, batches, order)  # memory is touched for the first time
    before = {name: llm.stats() for name, llm in engines.items()}
    rounds: list[dict[str, float]] = []
    started = time.perf_counter()
    while len(rounds) < MIN_ROUNDS or time.perf_counter() - started < seconds:
        elapsed, num_tokens = _round(engines, load, batches, order)
        rounds.append(elapsed)
    rows = []
    for name, llm in engines.items():
        now, then = llm.stats(), before[name]
        verified = now.draft_tokens_total - then.draft_tokens_total
        accepted = now.accepted_draft_tokens_total - then.accepted_draft_tokens_total
        ratios = [2 * each[name] / (each[WITHOUT] + each[AGAIN]) for each in rounds]
        quarter, median, three_quarters = statistics.quantiles(ratios, n=4)
        num_all = len(rounds) * num_tokens
        rows.append(
            {
                "load": load.name,
                "drafts": name,
                "ms_per_token": round(1e3 * statistics.median([each[name] for each in rounds]) / num_tokens, 4),
                "time_against_without": round(median, 3),
                "quartiles": [round(quarter, 3), round(three_quarters, 3)],
                "verified_per_token": round(verified / num_all, 3),
                "acceptance": round(accepted / verified, 3) if verified else None,
                "saved_steps": round((now.saved_steps_total - then.saved_steps_total) / num_all, 3),
                "output_tokens": num_tokens,
                "rounds": len(rounds),
            }
        )
    return rows


def _round(
    engines: dict[str, LLM], load: Load, batches: list[list[list[int]]], order: random.Random
) -> tuple[dict[str, float], int]:
    """Seconds of each engine for all batches, and the number of output tokens, which are checked to be the same."""
    elapsed, num_tokens = dict.fromkeys(engines, 0.0), 0
    for batch in batches:
        expected: list[tuple[int, ...]] | None = None
        for name in order.sample(list(engines), len(engines)):
            started = time.perf_counter()
            results = engines[name].generate(batch, load.params)
            elapsed[name] += time.perf_counter() - started
            tokens = [tuple(result.outputs[0].token_ids) for result in results]
            expected = expected or tokens
            assert tokens == expected, f"{name} gives other tokens"
        num_tokens += sum(map(len, expected or ()))
    return elapsed, num_tokens


if __name__ == "__main__":
    main()
