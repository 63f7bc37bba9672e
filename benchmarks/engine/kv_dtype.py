"""What keys and values of 8 bits cost in accuracy, logit by logit: the demo models' own greedy answers to held-out
questions, read once more under each dtype. `python -m benchmarks.engine.kv_dtype [--count N] [--out FILE]`

Unlike greedy answers compared as a whole (accuracy.py), every token counts the same, and no comparison depends on the
previous token.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.engine.accuracy import DEMO_MODELS, MODELS
from cli.bench.record import document, write
from demo_models.train.probes import PROBED_SKILLS, probes
from engine import LLM, EngineConfig, SamplingParams
from engine.attention import choose_backend
from engine.attention.backend import ForwardBatch, StepLayout
from engine.attention.layout import layer_specs
from engine.kernels.choice import choose_operators
from engine.loader import Checkpoint, CheckpointWeights, read_config
from engine.memory.planning.planner import plan_pool
from engine.models.causal_lm import CausalLM
from engine.models.config_reader import ConfigReader
from engine.models.registry import architecture_of
from engine.runner.pool import zeroed_pool

RESULT = Path(__file__).parents[1] / "results" / "kv_dtype.json"
CPU = torch.device("cpu")
PAGE_TOKENS = EngineConfig.page_tokens
#: (computation, keys and values); the first is what the others are compared with.
FORMATS = (
    (torch.float32, torch.float32),
    (torch.float32, torch.int8),
    (torch.bfloat16, torch.bfloat16),
    (torch.bfloat16, torch.int8),
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=40, help="questions per skill (40)")
    parser.add_argument("--out", type=Path, default=RESULT, help="JSON file")
    options = parser.parse_args(arguments)
    rows = []
    for model in MODELS:
        for row in measure(DEMO_MODELS / model, options.count):
            rows.append({"model": model, **row})
            print(rows[-1], flush=True)
    write(options.out, document("kv_dtype", {"count": options.count}, rows))


def measure(folder: Path, count: int) -> Iterator[dict[str, Any]]:
    """One row for each format. Perplexity is of the answers' tokens; divergence (Kullback and Leibler) is that of the
    next token's distribution from the one in float32, in nats."""
    texts = answers(folder, count)
    exact: list[torch.Tensor] = []
    for dtype, kv_dtype in FORMATS:
        logits = [next_logits(reader, *text) for reader in [Reader(folder, dtype, kv_dtype)] for text in texts]
        exact = exact or logits
        targets = [torch.tensor(ids[num_prompt:]) for ids, num_prompt in texts]
        losses = torch.cat([-found.gather(1, ids[:, None])[:, 0] for found, ids in zip(logits, targets, strict=True)])
        pairs = list(zip(exact, logits, strict=True))
        divergence = torch.cat([(a.exp() * (a - b)).sum(1) for a, b in pairs])
        same = torch.cat([a.argmax(1) == b.argmax(1) for a, b in pairs])
        yield {
            "dtype": str(dtype).removeprefix("torch."),
            "kv_dtype": str(kv_dtype).removeprefix("torch."),
            "tokens": len(losses),
            "perplexity": round(float(losses.mean().exp()), 5),
            "mean_divergence": float(f"{divergence.mean():.2g}"),
            "largest_divergence": float(f"{divergence.max():.2g}"),
            "same_likeliest_token": round(float(same.float().mean()), 5),
        }


def answers(folder: Path, count: int) -> list[tuple[list[int], int]]:
    """Token ids of each question followed by its answer, and the number of the question's tokens."""
    chats = [
        [{"role": role, "content": text} for role, text in probe.messages]
        for skill in PROBED_SKILLS
        for probe in probes(skill, count)
    ]
    llm = LLM(str(folder), dtype="float32", max_running=32)
    results = llm.chat(chats, SamplingParams(temperature=0.0, max_tokens=96))
    llm.close()
    return [
        (result.prompt_token_ids + result.outputs[0].token_ids, len(result.prompt_token_ids))
        for result in results
        if result.outputs[0].token_ids
    ]


class Reader:
    """A model over a pool of its own, one sequence at a time."""

    def __init__(self, folder: Path, dtype: torch.dtype, kv_dtype: torch.dtype) -> None:
        settings = ConfigReader(read_config(folder))
        self._operators = choose_operators(CPU, dtype, torch.get_num_threads(), allow_compiled=True)
        weights = CheckpointWeights(Checkpoint(folder), dtype=dtype, device=CPU, operators=self._operators)
        with torch.inference_mode():
            self.model: CausalLM = architecture_of(settings).build(settings, weights)
        shapes, length = self.model.attention_shapes, self.model.max_positions
        specs = layer_specs(shapes, kv_dtype, length)
        num_bytes = sum(spec.bytes_per_token for spec in specs) * (length + 4 * PAGE_TOKENS)
        self._plan = plan_pool(specs, page_tokens=PAGE_TOKENS, pool_bytes=num_bytes)
        pool = zeroed_pool(self._plan.pool_bytes, CPU)
        self._backend = choose_backend(self._operators, self._plan, pool, shapes, dtype)

    @torch.inference_mode()
    def log_probabilities(self, token_ids: list[int]) -> torch.Tensor:
        """[tokens, vocabulary]: log probabilities of the token that follows each one."""
        (kind,) = self._plan.types
        pages = 1 + np.arange(-(-len(token_ids) // kind.page_tokens))[None]
        layout = StepLayout(np.array([0]), np.array([len(token_ids)]), {kind.name: pages})
        positions = torch.from_numpy(layout.positions)
        batch = ForwardBatch(torch.tensor(token_ids), positions, self._backend.begin(layout))
        return torch.log_softmax(self.model.logits(self.model.forward(batch)).float(), dim=-1)


def next_logits(reader: Reader, token_ids: list[int], num_prompt: int) -> torch.Tensor:
    """Log probabilities at the positions from which the tokens of the answer are drawn."""
    return reader.log_probabilities(token_ids)[num_prompt - 1 : -1]


if __name__ == "__main__":
    main()
