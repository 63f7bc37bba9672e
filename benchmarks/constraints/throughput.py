"""Tokens per second of streams under a JSON schema against free ones, of one model, alternating.

    python -m benchmarks.constraints.throughput demo_models/raven [--streams 32] [--tokens 128] [--rounds 5]

Both kinds of streams get the same number of tokens: the schema is a list of texts that does not end before. The first
round is not counted. On a busy machine the processor's time of the engine's thread says more than the clock. Prints
JSON with every round.
"""

import argparse
import json
import os
import statistics
import subprocess
import time
from typing import Any

from engine.llm import LLM
from engine.sampling_params import Constraint, SamplingParams

_SCHEMA = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
        "required": ["name", "size"],
        "additionalProperties": False,
    },
    "minItems": 1000,
}


def measure(llm: LLM, params: SamplingParams, streams: int) -> tuple[float, float]:
    """Tokens per second of so many streams at once, by the clock and by the processor's time of the engine's thread."""
    prompts = [[65 + index % 26] * 8 for index in range(streams)]
    started, worked = time.perf_counter(), time.thread_time()
    results = llm.generate(prompts, params)
    seconds, busy = time.perf_counter() - started, time.thread_time() - worked
    num_tokens = sum(len(result.outputs[0].token_ids) for result in results)
    return num_tokens / seconds, num_tokens / busy


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    free = SamplingParams(temperature=1.0, seed=1, max_tokens=arguments.tokens, ignore_eos=True)
    bound = SamplingParams(
        temperature=1.0,
        seed=1,
        max_tokens=arguments.tokens,
        ignore_eos=True,
        constraint=Constraint("json_schema", json.dumps(_SCHEMA)),
    )
    rounds: list[dict[str, float]] = []
    with LLM(arguments.model, max_running=arguments.streams, enable_prefix_caching=False) as llm:
        for _ in range(arguments.rounds + 1):
            rates = {}
            for name, params in (("free", free), ("bound", bound)):
                by_clock, by_processor = measure(llm, params, arguments.streams)
                rates |= {name: round(by_clock, 1), f"{name}_by_processor": round(by_processor, 1)}
            rounds.append(rates)
    rounds = rounds[1:]
    medians = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    report: dict[str, Any] = {
        "commit": commit,
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "tokens_per_s": medians,
        "share": round(medians["bound"] / medians["free"], 3),
        "share_by_processor": round(medians["bound_by_processor"] / medians["free_by_processor"], 3),
        "rounds": rounds,
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
