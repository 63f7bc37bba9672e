"""Our engine against `transformers`' generate: the same weights, prompts, threads and number of tokens, in one process.

Greedy, and past the end-of-sequence token, so that both do exactly the same amount of work. The systems take turns in
every round, so that a machine that gets slower or faster meanwhile does so for all of them. Prefix caching is off: it
would answer the second round from memory.
"""

import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cli.errors import CliError

if TYPE_CHECKING:
    pass

DType = Literal["float32", "bfloat16"]
Tokens = list[int]


@dataclass(frozen=True, slots=True)
class Work:
    """One prompt as token ids, and how many tokens must follow it."""

    ids: tuple[int, ...]
    out: int


@dataclass(slots=True)
class Measured:
    """One system on one part of the work. `outputs` are those of the last round, in the order of the work."""

    system: str
    concurrency: int
    num_prompts: int
    output_tokens: int
    seconds: list[float] = field(default_factory=list)
    outputs: list[Tokens] = field(default_factory=list)

    @property
    def tokens_per_s(self) -> float:
        return self.output_tokens / statistics.median(self.seconds)

    def as_row(self) -> dict[str, Any]:
        return {
            "system": self.system,
            "concurrency": self.concurrency,
            "num_prompts": self.num_prompts,
            "output_tokens": self.output_tokens,
            "seconds": [round(second, 4) for second in self.seconds],
            "tokens_per_s": round(self.tokens_per_s, 2),
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """`num_equal` of `num_compared` prompts got token for token the same answer from both systems."""

    measured: list[Measured]
    num_equal: int
    num_compared: int


def read_workload(path: Path) -> list[Work]:
    """A JSON list of {"ids": [token ids], "out": number of tokens}."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        work = [Work(tuple(int(token) for token in row["ids"]), int(row["out"])) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CliError(f"{path} is no workload ({error!r}); it must be a list of {{ids, out}}.") from None
    if not work or any(not item.ids or item.out < 1 for item in work):
        raise CliError(f"{path} has no work, an empty prompt, or an out below 1.")
    return work


def random_work(num_prompts: int, input_len: int, output_len: int, vocab_size: int, seed: int = 0) -> list[Work]:
    """Uniform token ids: no prompt shares a prefix with another."""
    generator = random.Random(seed)
    return [Work(tuple(generator.choices(range(vocab_size), k=input_len)), output_len) for _ in range(num_prompts)]


def vocab_size(model: str) -> int:
    config = Path(model) / "config.json"
    if not config.is_file():
        raise CliError(f"--model {model} must be a local folder in Hugging Face layout.")
    fields = json.loads(config.read_text(encoding="utf-8"))
    size = fields.get("vocab_size") or fields.get("text_config", {}).get("vocab_size")
    if not isinstance(size, int):
        raise CliError(f"{config} names no vocab_size.")
    return size


def compare(
    model: str,
    work: Sequence[Work],
    *,
    concurrency: int,
    num_single: int,
    dtype: DType,
    device: str,
    threads: int,
    repeats: int,
    progress: Callable[[str], None],
) -> Comparison:
    """One at a time on the first `num_single` prompts, and all prompts `concurrency` at once, by both systems."""
    import torch

    torch.set_num_threads(threads)
    progress("loading both")
    peer = _Transformers(model, dtype, device)
    ours = _Agon(model, dtype, device, threads, concurrency)
    single = list(work[:num_single])
    plan: list[tuple[Measured, Callable[[], list[Tokens]]]] = [
        (_blank("transformers", 1, single), lambda: peer.one_at_a_time(single)),
        (_blank("transformers", concurrency, work), lambda: peer.batched(work, concurrency)),
        (_blank("agon", 1, single), lambda: ours.one_at_a_time(single)),
        (_blank("agon", concurrency, work), lambda: ours.together(work)),
    ]
    progress("warming up")
    warm = [Work(item.ids, 2) for item in work[:concurrency]]
    peer.batched(warm, concurrency)
    ours.together(warm)
    for number in range(1, repeats + 1):
        for measured, run in plan:
            progress(f"round {number} of {repeats}: {measured.system}, {measured.concurrency} at once")
            started = time.perf_counter()
            measured.outputs = run()
            measured.seconds.append(time.perf_counter() - started)
    ours.close()
    rows = [measured for measured, _ in plan]
    reference, ours_single, ours_together = rows[0].outputs, rows[2].outputs, rows[3].outputs
    equal = [a == b == c for a, b, c in zip(reference, ours_single, ours_together[:num_single], strict=True)]
    return Comparison(rows, sum(equal), len(equal))


def _blank(system: str, concurrency: int, work: Sequence[Work]) -> Measured:
    return Measured(system, concurrency, len(work), sum(item.out for item in work))


class _Transformers:
    """`generate`, one prompt at a time or in padded batches."""

    def __init__(self, model: str, dtype: DType, device: str) -> None:
        import torch
        import transformers

        library: Any = transformers  # typed in parts only
        library.logging.set_verbosity_error()
        library.utils.logging.disable_progress_bar()
        self._torch = torch
        self._model = library.AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype))
        self._model = self._model.to(device).eval()
        self._device = device
        # Without an end-of-sequence token it goes on to the limit, as ignore_eos does.
        self._model.generation_config = library.GenerationConfig(do_sample=False, pad_token_id=0)

    def one_at_a_time(self, work: Sequence[Work]) -> list[Tokens]:
        return [self._generate([item], item.out)[0] for item in work]

    def batched(self, work: Sequence[Work], size: int) -> list[Tokens]:
        """Sorted by the number of tokens to come, which is the best case for batches that end together."""
        order = sorted(range(len(work)), key=lambda index: (work[index].out, len(work[index].ids)))
        outputs: list[Tokens] = [[] for _ in work]
        for start in range(0, len(order), size):
            indices = order[start : start + size]
            batch = [work[index] for index in indices]
            for index, tokens in zip(indices, self._generate(batch, max(item.out for item in batch)), strict=True):
                outputs[index] = tokens[: work[index].out]
        return outputs

    def _generate(self, batch: Sequence[Work], num_tokens: int) -> list[Tokens]:
        torch = self._torch
        width = max(len(item.ids) for item in batch)
        ids = torch.zeros(len(batch), width, dtype=torch.long)
        mask = torch.zeros(len(batch), width, dtype=torch.long)
        for row, item in enumerate(batch):  # padded on the left: the new tokens follow the prompt
            ids[row, width - len(item.ids) :] = torch.tensor(item.ids)
            mask[row, width - len(item.ids) :] = 1
        with torch.inference_mode():
            ids, mask = ids.to(self._device), mask.to(self._device)
            whole = self._model.generate(ids, attention_mask=mask, max_new_tokens=num_tokens)
        return [[int(token) for token in row] for row in whole[:, width:]]


class _Agon:
    """Our engine through its library interface."""

    def __init__(self, model: str, dtype: DType, device: str, threads: int, concurrency: int) -> None:
        from engine import LLM

        self._llm: LLM = LLM(
            model,
            dtype=dtype,
            device=device,
            enable_prefix_caching=False,
            max_running=concurrency,
            num_threads=threads,
        )

    def one_at_a_time(self, work: Sequence[Work]) -> list[Tokens]:
        return [self.together([item])[0] for item in work]

    def together(self, work: Sequence[Work]) -> list[Tokens]:
        from engine import SamplingParams

        params = [SamplingParams(temperature=0.0, max_tokens=item.out, ignore_eos=True) for item in work]
        outputs = self._llm.generate([list(item.ids) for item in work], params)
        return [list(output.outputs[0].token_ids) for output in outputs]

    def close(self) -> None:
        self._llm.close()
