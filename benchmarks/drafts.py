"""What proposed tokens gain and cost: the demo model raven without, with n-grams and with finch as its draft model, in
turns in one process. Milliseconds per output token, by load.

    python -m benchmarks.drafts --json benchmarks/results/drafts.json

Every engine gives the same tokens, which is checked. Three loads: answers that copy from their prompt, questions of the
demo, and 32 streams of random tokens, for which nothing can be proposed that is right.
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
SYSTEMS: dict[str, str | None] = {"without": None, "ngram": "ngram", "finch": DRAFT}
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


@dataclass(frozen=True, slots=True)
class Load:
    """Requests that are given to an engine, `at_once` at a time."""

    name: str
    prompts: Sequence[Sequence[int]]
    params: SamplingParams
    at_once: int


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the result there")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    engines = {
        name: LLM(TARGET, draft=draft, kv_cache_bytes=96 << 20, enable_prefix_caching=False)
        for name, draft in SYSTEMS.items()
    }
    rows: list[dict[str, Any]] = []
    for load in _loads(engines["without"]):
        measured = _measure(engines, load, arguments.rounds)
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


def _measure(engines: dict[str, LLM], load: Load, num_rounds: int) -> list[dict[str, Any]]:
    """One row for each engine: medians over rounds in which they take turns, in an order that moves on."""
    names = list(engines)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    ratios: dict[str, list[float]] = {name: [] for name in names}
    before: dict[str, Any] = {}
    expected: list[list[int]] = []
    for number in range(num_rounds + 2):  # the first two learn what steps cost
        for name in names[number % 3 :] + names[: number % 3]:
            if number == 2:
                before[name] = engines[name].stats()
            elapsed, tokens = _run(engines[name], load)
            expected = expected or tokens
            assert tokens == expected, f"{name} gives other tokens"
            if number >= 2:
                seconds[name].append(elapsed)
        if number >= 2:
            for name in names:
                ratios[name].append(seconds[name][-1] / seconds["without"][-1])
    num_tokens = sum(map(len, expected))
    rows = []
    for name in names:
        now, then = engines[name].stats(), before[name]
        verified = now.draft_tokens_total - then.draft_tokens_total
        accepted = now.accepted_draft_tokens_total - then.accepted_draft_tokens_total
        rows.append(
            {
                "load": load.name,
                "drafts": name,
                "ms_per_token": round(1e3 * statistics.median(seconds[name]) / num_tokens, 4),
                "time_against_without": round(statistics.median(ratios[name]), 3),
                "verified_per_token": round(verified / num_rounds / num_tokens, 3),
                "acceptance": round(accepted / verified, 3) if verified else None,
                "saved_steps": round((now.saved_steps_total - then.saved_steps_total) / num_rounds / num_tokens, 3),
                "output_tokens": num_tokens,
                "rounds": num_rounds,
            }
        )
    return rows


def _run(llm: LLM, load: Load) -> tuple[float, list[list[int]]]:
    """Seconds, and the tokens of each request."""
    tokens: list[list[int]] = []
    started = time.perf_counter()
    for first in range(0, len(load.prompts), load.at_once):
        prompts = [list(prompt) for prompt in load.prompts[first : first + load.at_once]]
        tokens += [list(result.outputs[0].token_ids) for result in llm.generate(prompts, load.params)]
    return time.perf_counter() - started, tokens


if __name__ == "__main__":
    main()
