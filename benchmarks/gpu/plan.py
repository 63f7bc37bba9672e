"""What one run of the GPU benchmark measures: on a device, or in miniature to check that everything runs."""

import random
from dataclasses import dataclass, replace
from typing import Any

from cli.bench.workloads import Work, named, within_vocabulary

PEERS = "transformers"  #: the part of a plan that measures them


@dataclass(frozen=True, slots=True)
class Plan:
    models: tuple[str, ...]  #: the first one also serves the loads, as the peers do
    batches: tuple[int, ...]
    context: int
    decode_steps: int
    prompts: tuple[int, ...]
    prefill_repeats: int
    uniform: tuple[int, int, int]  #: requests, shortest and longest prompt and answer
    num_sharegpt: int
    peer_tokens: tuple[int, int]  #: the longest answers of a peer: of one request alone, and of requests in a batch
    peer_batch: int  #: the first requests of the uniform load, which a peer answers together
    continuous_s: float  #: limit of transformers' continuous batching; 0: it is left out
    max_model_len: int
    max_batched_tokens: int
    num_profiled: int = 0  #: decode steps whose kernels are timed one by one; 0: none are
    has_peers: bool = True  #: transformers on the same work
    operators: str = "auto"  #: of the engine, as its setting of that name
    enforce_eager: bool = False  #: no graphs

    @property
    def load_model(self) -> str:
        return self.models[0]

    @property
    def parts(self) -> tuple[str, ...]:
        """What is measured in a process of its own, the most important first."""
        return (*self.models, PEERS) if self.has_peers else self.models

    @property
    def max_running(self) -> int:
        return max(*self.batches, self.uniform[0])


WHOLE = Plan(
    models=("qwen3-0.6b", "llama-3.2-1b", "llama-3.1-8b"),
    batches=(1, 16, 64, 256),
    context=1024,
    decode_steps=64,
    prompts=(1024, 2048, 8192),
    prefill_repeats=5,
    uniform=(256, 100, 1024),
    num_sharegpt=512,
    peer_tokens=(128, 256),
    peer_batch=64,
    continuous_s=30.0,
    max_model_len=8448,
    max_batched_tokens=8192,
)
#: Nine minutes of a device: the points of our goals, for the model of the loads and for a large one.
QUICK = replace(WHOLE, models=("qwen3-0.6b", "llama-3.1-8b"), prompts=(2048, 8192), prefill_repeats=3, num_sharegpt=0)
MINIATURE = Plan(
    models=("tiny",),
    batches=(1, 3),
    context=32,
    decode_steps=4,
    prompts=(16, 48),
    prefill_repeats=2,
    uniform=(4, 4, 12),
    num_sharegpt=2,
    peer_tokens=(4, 6),
    peer_batch=3,
    continuous_s=0.0,  # on CPU it begins by looking at memory for a minute
    max_model_len=512,
    max_batched_tokens=64,
    operators="torch",  # nothing is compiled, and torch's profiler sees every operator
)


def changed(plan: Plan, **fields: Any) -> Plan:
    """The plan with these fields, where they are not None."""
    return replace(plan, **{name: value for name, value in fields.items() if value is not None})


def uniform_work(num_requests: int, shortest: int, longest: int, vocab_size: int) -> list[Work]:
    """The load of nano-vllm's benchmark: uniform prompt and answer lengths, ids below 10,000, seed 0."""
    generator = random.Random(0)
    bound = min(10_000, vocab_size)
    prompts = [
        tuple(generator.randrange(bound) for _ in range(generator.randint(shortest, longest)))
        for _ in range(num_requests)
    ]
    return [Work(ids, generator.randint(shortest, longest)) for ids in prompts]


def sharegpt_work(num_requests: int, vocab_size: int) -> list[Work]:
    return within_vocabulary(named("sharegpt", num_requests), vocab_size)
