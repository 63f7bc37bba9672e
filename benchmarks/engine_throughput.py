"""Tokens per second of the engine at 1, 8 and 32 concurrent requests, against transformers' generate in the same run.

    python benchmarks/engine_throughput.py MODEL_FOLDER [--dummy] [--prompt-tokens 64] [--output-tokens 64]

Prints one JSON object. Every engine gets the same random prompts and draws greedily without an end token. On a machine
with other work, compare tokens per CPU second: wall time then says more about the neighbours than about the engines.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from engine import LLM, SamplingParams

CONCURRENCIES = (1, 8, 32)
Generate = Callable[[list[list[int]], int], int]  #: (prompts, output tokens of each) -> tokens drawn in all


def measure(generate: Generate, prompts: list[list[int]], num_tokens: int, repeats: int) -> dict[str, float]:
    """Best wall time and best CPU time of some repeats, as tokens per second."""
    generate(prompts[:1], 2)
    walls, cpus = [], []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        drawn = generate(prompts, num_tokens)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
        assert drawn == num_tokens * len(prompts)
    total = num_tokens * len(prompts)
    return {"tokens_per_s": round(total / min(walls), 1), "tokens_per_cpu_s": round(total / min(cpus), 1)}


def agon(model: str, *, is_dummy: bool, threads: int, prompt_tokens: int, num_tokens: int) -> tuple[Generate, str]:
    llm = LLM(
        model,
        load_format="dummy" if is_dummy else "auto",
        num_threads=threads,
        max_running=max(CONCURRENCIES),
        max_model_len=prompt_tokens + num_tokens + 1,
        enable_prefix_caching=False,
    )

    def generate(prompts: list[list[int]], count: int) -> int:
        params = SamplingParams(max_tokens=count, temperature=0.0, ignore_eos=True)
        return sum(len(result.outputs[0].token_ids) for result in llm.generate(prompts, params))

    return generate, llm.info.dtype


def transformers_generate(model: str, *, is_dummy: bool, dtype: str, is_batched: bool) -> Generate:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch_dtype = getattr(torch, dtype)
    if is_dummy:
        torch.manual_seed(0)
        network: Any = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model), dtype=torch_dtype)
    else:
        network = AutoModelForCausalLM.from_pretrained(model, dtype=torch_dtype)
    network.eval()

    @torch.inference_mode()
    def batch(prompts: list[list[int]], count: int) -> int:
        ids = torch.tensor(prompts)
        output = network.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=count,
            min_new_tokens=count,
            do_sample=False,
            pad_token_id=0,
        )
        return int(output[:, ids.shape[1] :].numel())

    def one_at_a_time(prompts: list[list[int]], count: int) -> int:
        return sum(batch([prompt], count) for prompt in prompts)

    return batch if is_batched else one_at_a_time


def machine() -> dict[str, Any]:
    cpu = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    return {"cpu": cpu, "cores": os.cpu_count(), "python": platform.python_version(), "torch": torch.__version__}


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).is_file() else []


def _commit() -> str:
    here = Path(__file__).parent
    result = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=here, capture_output=True, text=True)
    return result.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder in Hugging Face layout")
    parser.add_argument("--dummy", action="store_true", help="random weights from config.json alone")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--concurrency", type=int, nargs="+", default=list(CONCURRENCIES))
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    vocab_size = json.loads((Path(arguments.model) / "config.json").read_text())["vocab_size"]
    generator = random.Random(0)
    prompts = [
        [generator.randrange(vocab_size) for _ in range(arguments.prompt_tokens)]
        for _ in range(max(arguments.concurrency))
    ]
    load_before = os.getloadavg()[0]
    engine, dtype = agon(
        arguments.model,
        is_dummy=arguments.dummy,
        threads=arguments.threads,
        prompt_tokens=arguments.prompt_tokens,
        num_tokens=arguments.output_tokens,
    )
    engines = {
        "agon": engine,
        "transformers one at a time": transformers_generate(
            arguments.model, is_dummy=arguments.dummy, dtype=dtype, is_batched=False
        ),
        "transformers batched": transformers_generate(
            arguments.model, is_dummy=arguments.dummy, dtype=dtype, is_batched=True
        ),
    }
    results = {
        name: {
            str(count): measure(generate, prompts[:count], arguments.output_tokens, arguments.repeats)
            for count in arguments.concurrency
        }
        for name, generate in engines.items()
    }
    report = {
        "commit": _commit(),
        "machine": machine(),
        "load_average": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "settings": {**vars(arguments), "model": Path(arguments.model).name, "dtype": dtype},
        "results": results,
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
