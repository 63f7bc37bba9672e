"""A conversation about one long document: cached tokens and time to first token of every turn, with prefix caching and
without. Random weights.

python -m benchmarks.engine.prefix_turns [--shapes NAME,...] [--turns N] [--threads N] [--quick] [--json FILE]

Each turn's prompt is the conversation so far and a new question. Recurrent layers go on from their last checkpoint, so
a turn computes what is new and at most one checkpoint interval beside it. Without caching only some turns are measured:
each computes its whole prompt.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.engine.hybrid_shapes import MAX_TOKENS, SHAPES
from benchmarks.peers.noise import NoiseMeter
from cli.bench import record
from engine.config import DType, EngineConfig
from engine.loaded_engine import LoadedEngine, load_engine
from engine.memory.spec import PoolPlan
from engine.sampling_params import SamplingParams

RESULT = Path(__file__).parent.parent / "results" / "prefix_turns.json"
NAMES = ("qwen3.5", "granite-4", "gemma-4")
DOCUMENT_TOKENS, QUESTION_TOKENS, ANSWER_TOKENS = 8192, 32, 16
POOL_BYTES = 1 << 30
_SEED = 20261124


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default=",".join(NAMES), help=f"with commas, of {', '.join(SHAPES)}")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--quick", action="store_true", help="tiny shapes, four turns: to see that everything runs")
    parser.add_argument("--json", type=Path, default=RESULT)
    chosen = parser.parse_args(arguments)
    names = chosen.shapes.split(",")
    if unknown := [name for name in names if name not in SHAPES]:
        parser.error(f"there is no shape {unknown[0]!r}")
    num_turns, document_tokens = (4, 1100) if chosen.quick else (chosen.turns, DOCUMENT_TOKENS)
    settings = {"dtype": chosen.dtype, "threads": chosen.threads, "turns": num_turns, "document": document_tokens}
    settings |= {"question": QUESTION_TOKENS, "answer": ANSWER_TOKENS}
    document = record.document("prefix_turns", settings, [])  # before: the commit that the run started with
    rows: list[dict[str, Any]] = []
    with NoiseMeter(os.getpid()) as meter, tempfile.TemporaryDirectory() as parent:
        for name in names:
            folder = SHAPES[name].make(Path(parent) / name, is_quick=chosen.quick)
            questions = _questions(num_turns, document_tokens, SHAPES[name].vocab_size(is_quick=chosen.quick))
            for row in measure(name, folder, chosen.dtype, chosen.threads, questions):
                print(row, flush=True)
                rows.append(row)
    summaries = [summary_of(name, [row for row in rows if row["shape"] == name]) for name in names]
    noise = asdict(meter.noise())
    record.write(chosen.json, {**document, "rows": rows, "summaries": summaries, "noise": noise})


def measure(
    name: str, folder: Path, dtype: DType, num_threads: int, questions: list[list[int]]
) -> Iterator[dict[str, Any]]:
    """A row for each turn with caching, then for the first, middle and last turn without."""
    loaded = _load(folder, dtype, num_threads, is_caching=True)
    plan = loaded.core._cache.plan
    conversation: list[int] = []
    prompts: list[list[int]] = []
    for turn, question in enumerate(questions, start=1):
        num_known = len(conversation)
        conversation = conversation + question
        prompts.append(conversation)
        found, answer = _ask(loaded, conversation)
        conversation = conversation + answer
        expected = expected_hit(plan, num_known)
        yield {"shape": name, "is_caching": True, "turn": turn, **found, "expected_cached": expected}
    loaded.core.close()
    loaded = _load(folder, dtype, num_threads, is_caching=False)
    for turn in sorted({1, (len(questions) + 1) // 2, len(questions)}):
        found, _ = _ask(loaded, prompts[turn - 1])
        yield {"shape": name, "is_caching": False, "turn": turn, **found, "expected_cached": 0}
    loaded.core.close()


def expected_hit(plan: PoolPlan, num_known: int) -> int:
    """Tokens of a conversation of that length whose keys, values and states the next turn should find: all but the last
    answer's last token, which was never computed, down to a boundary that every layer type has kept."""
    boundary = max(kind.page_tokens for kind in plan.types)
    return max(0, num_known - 1) // boundary * boundary


def summary_of(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The first turn, which finds nothing, against the median of later ones."""
    cached = [row for row in rows if row["is_caching"]]
    first, later = cached[0], cached[1:]
    later_ms = statistics.median(row["first_token_ms"] for row in later)
    return {
        "shape": name,
        "cold_ms": first["first_token_ms"],
        "later_ms": later_ms,
        "times_sooner": round(first["first_token_ms"] / later_ms, 1),
        "most_computed": max(row["computed_tokens"] for row in later),
        "as_expected": all(row["cached_tokens"] == row["expected_cached"] for row in cached),
        "without_caching_ms": rows[-1]["first_token_ms"],
    }


def _load(folder: Path, dtype: DType, num_threads: int, *, is_caching: bool) -> LoadedEngine:
    """An engine that has answered once, about something else."""
    config = EngineConfig(
        str(folder),
        dtype=dtype,
        device="cpu",
        num_threads=num_threads,
        kv_cache_bytes=POOL_BYTES,
        max_model_len=MAX_TOKENS,
        enable_prefix_caching=is_caching,
    )
    loaded = load_engine(config, has_queue_bound=False)
    _ask(loaded, list(range(3, 99)))
    return loaded


def _ask(loaded: LoadedEngine, prompt: list[int]) -> tuple[dict[str, Any], list[int]]:
    """One turn's figures, and its answer."""
    core = loaded.core
    answer: list[int] = []
    num_cached, first_s = 0, 0.0
    started = time.perf_counter()
    core.add_request("turn", prompt, SamplingParams(temperature=0.0, max_tokens=ANSWER_TOKENS, ignore_eos=True))
    while not core.is_idle:
        for delta in core.step():
            if not answer:
                first_s, num_cached = time.perf_counter() - started, delta.num_cached_tokens
            answer += delta.token_ids
    figures = {
        "prompt_tokens": len(prompt),
        "cached_tokens": num_cached,
        "computed_tokens": len(prompt) - num_cached,
        "first_token_ms": round(1000 * first_s, 2),
    }
    return figures, answer


def _questions(num_turns: int, document_tokens: int, vocab_size: int) -> list[list[int]]:
    """What each turn adds; the first one the document too."""
    generator = torch.Generator().manual_seed(_SEED)
    lengths = [document_tokens + QUESTION_TOKENS] + (num_turns - 1) * [QUESTION_TOKENS]
    return [torch.randint(3, vocab_size, (length,), generator=generator).tolist() for length in lengths]


if __name__ == "__main__":
    main()
