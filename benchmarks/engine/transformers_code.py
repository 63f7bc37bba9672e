"""What it costs that transformers' modelling code runs a model, instead of Agon's own: the same Llama both ways, greedy
decode and one long prompt. `python -m benchmarks.engine.transformers_code [MODEL] [--dummy] [--threads N] [--out FILE]`
"""

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cli.bench.record import document, write
from engine import LLM, SamplingParams
from engine.models.registry import ARCHITECTURES, through_transformers

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "benchmarks" / "results" / "transformers_code.json"
NAME = "LlamaForCausalLM"
STREAMS = (1, 8, 32)
NEW_TOKENS = 32
PROMPT_TOKENS = 512


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default=str(ROOT / "demo_models" / "robin"), help="a Llama's folder")
    parser.add_argument("--dummy", action="store_true", help="random weights")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULT, help="JSON file")
    options = parser.parse_args(arguments)
    load_format = "dummy" if options.dummy else "auto"
    rows = list(measure(options.model, load_format, options.threads, options.rounds))
    for row in rows:
        print(row, flush=True)
    settings = {
        "model": Path(options.model).name,
        "load_format": load_format,
        "threads": options.threads,
        "rounds": options.rounds,
    }
    write(options.out, document("transformers_code", settings, rows))


def measure(model: str, load_format: str, threads: int, rounds: int) -> Iterator[dict[str, Any]]:
    """One row for each load: median seconds each way, in turns, and their ratio."""
    engines = {code: _load(code, model, load_format, threads) for code in ("agon", "transformers")}
    for what, num_streams, num_tokens, num_new in (
        *(("decode", streams, 8, NEW_TOKENS) for streams in STREAMS),
        ("prompt", 1, PROMPT_TOKENS, 1),
    ):
        seconds: dict[str, list[float]] = {code: [] for code in engines}
        for turn in range(rounds):
            for code, llm in engines.items():
                prompts = [[5 + turn, 6 + stream, *range(7, 5 + num_tokens)] for stream in range(num_streams)]
                started = time.perf_counter()
                llm.generate(prompts, SamplingParams(temperature=0.0, max_tokens=num_new, ignore_eos=True))
                seconds[code].append(time.perf_counter() - started)
        medians = {code: statistics.median(values) for code, values in seconds.items()}
        yield {
            "load": what,
            "streams": num_streams,
            **{f"{code}_ms": round(1000 * value, 2) for code, value in medians.items()},
            "times_slower": round(medians["transformers"] / medians["agon"], 2),
            "operators": {code: llm.info.operators for code, llm in engines.items()},
        }


def _load(code: str, model: str, load_format: str, threads: int) -> LLM:
    architecture = ARCHITECTURES[NAME] if code == "agon" else through_transformers(NAME)
    with patch("engine.runner.load.architecture_of", lambda config: architecture):
        return LLM(
            model,
            load_format=load_format,
            kv_cache_bytes=256 << 20,
            max_running=max(STREAMS),
            num_threads=threads,
            enable_prefix_caching=False,
        )


if __name__ == "__main__":
    main()
