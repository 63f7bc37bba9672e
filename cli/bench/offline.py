"""Throughput of our engine on a workload, alone or against `transformers` on the same token ids, in one process.

Sampling is greedy and ignores the end-of-sequence token, so that both systems do the same amount of work. They
alternate in every round, so that a change in the speed of the machine affects both. Prefix caching is off, because the
second round would find its prompts in the cache.
"""

import dataclasses
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli.bench.workloads import Tokens, Work
from cli.errors import CliError
from engine.config import EngineConfig


@dataclass(slots=True)
class Measured:
    """One system on one part of the work. `seconds` has one entry per round, `outputs` are those of the last round, in
    the order of the work. Mutable while the rounds run."""

    system: str
    concurrency: int
    work: Sequence[Work]
    seconds: list[float] = field(default_factory=list)
    outputs: list[Tokens] = field(default_factory=list)

    @property
    def output_tokens(self) -> int:
        """Tokens of all answers of one round."""
        return sum(item.out for item in self.work)

    @property
    def tokens_per_s(self) -> float:
        """Output tokens per second, by the median round."""
        return self.output_tokens / statistics.median(self.seconds)

    def as_row(self) -> dict[str, Any]:
        """The measurement as a row of the report."""
        median = statistics.median(self.seconds)
        prompt_tokens = sum(len(item.ids) for item in self.work)
        return {
            "system": self.system,
            "concurrency": self.concurrency,
            "num_prompts": len(self.work),
            "prompt_tokens": prompt_tokens,
            "output_tokens": self.output_tokens,
            "seconds": [round(second, 4) for second in self.seconds],
            "tokens_per_s": round(self.tokens_per_s, 2),
            "total_tokens_per_s": round((prompt_tokens + self.output_tokens) / median, 2),
            "requests_per_s": round(len(self.work) / median, 3),
        }


@dataclass(frozen=True, slots=True)
class DraftCounts:
    """What verifying proposed tokens has done."""

    drafts: int
    draft_tokens: int
    accepted_tokens: int
    saved_steps: int
    output_tokens: int

    def since(self, before: "DraftCounts") -> "DraftCounts":
        """What has been counted since."""
        return DraftCounts(
            *(now - then for now, then in zip(dataclasses.astuple(self), dataclasses.astuple(before), strict=True))
        )

    @property
    def acceptance(self) -> float:
        """Share of the verified tokens that were right."""
        return self.accepted_tokens / self.draft_tokens if self.draft_tokens else 0.0

    def as_fields(self) -> dict[str, Any]:
        """The fields of the report."""
        return {**dataclasses.asdict(self), "acceptance": round(self.acceptance, 4)}

    @property
    def sentence(self) -> str:
        """The line under the table."""
        return (
            f"drafts: {self.acceptance:.0%} of {self.draft_tokens} verified tokens were right; they saved "
            f"{self.saved_steps} of {self.output_tokens} decode steps"
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result: for `num_equal` of `num_compared` prompts both systems gave the same tokens."""

    dtype: str  #: what "auto" became, and the KV dtype if it differs
    operators: str  #: the kind of operators that our engine used
    measured: list[Measured]
    num_equal: int = 0
    num_compared: int = 0
    drafts: DraftCounts | None = None  #: None: the configuration asks for none


def vocab_size(model: str) -> int:
    """The vocabulary size in the folder's config.json; raises CliError."""
    config = Path(model) / "config.json"
    if not config.is_file():
        raise CliError(f"--model {model} must be a local folder in Hugging Face layout.")
    try:
        fields = json.loads(config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CliError(f"{config} is no JSON: {error}") from None
    size = fields.get("vocab_size") or fields.get("text_config", {}).get("vocab_size")
    if not isinstance(size, int):
        raise CliError(f"{config} names no vocab_size.")
    return size


def measure(config: EngineConfig, work: Sequence[Work], *, repeats: int, progress: Callable[[str], None]) -> Comparison:
    """All requests at once through our engine: a warm-up round, then `repeats` measured rounds."""
    progress("loading")
    with _Agon(config) as ours:
        measured = Measured("agon", config.step_limits.max_running, work)
        progress("warming up")
        ours.together([Work(item.ids, 2) for item in work[: config.step_limits.max_running]])
        before = ours.draft_counts()
        _take_turns([(measured, lambda: ours.together(work))], repeats, progress)
        drafts = None if config.draft is None else ours.draft_counts().since(before)
        return Comparison(ours.precision, ours.operators, [measured], drafts=drafts)


def compare(
    config: EngineConfig,
    work: Sequence[Work],
    *,
    num_single: int,
    repeats: int,
    progress: Callable[[str], None],
) -> Comparison:
    """transformers and our engine in turn: the first `num_single` prompts one at a time, and all prompts together."""
    size = config.step_limits.max_running
    progress("loading both")
    with _Agon(config) as ours:
        peer = _Transformers(config.model, ours.dtype, config.device, config.num_threads)
        single = list(work[:num_single])
        plan: list[tuple[Measured, Callable[[], list[Tokens]]]] = [
            (Measured("transformers", 1, single), lambda: peer.one_at_a_time(single)),
            (Measured("transformers", size, work), lambda: peer.batched(work, size)),
            (Measured("agon", 1, single), lambda: ours.one_at_a_time(single)),
            (Measured("agon", size, work), lambda: ours.together(work)),
        ]
        progress("warming up")
        warm = [Work(item.ids, 2) for item in work[:size]]
        peer.batched(warm, size)
        ours.together(warm)
        _take_turns(plan, repeats, progress)
        rows = [measured for measured, _ in plan]
        reference, ours_single, ours_together = rows[0].outputs, rows[2].outputs, rows[3].outputs
        equal = [a == b == c for a, b, c in zip(reference, ours_single, ours_together[:num_single], strict=True)]
        return Comparison(ours.precision, ours.operators, rows, sum(equal), len(equal))


def _take_turns(
    plan: Sequence[tuple[Measured, Callable[[], list[Tokens]]]], repeats: int, progress: Callable[[str], None]
) -> None:
    for number in range(1, repeats + 1):
        for measured, run in plan:
            progress(f"round {number} of {repeats}: {measured.system}, {measured.concurrency} at once")
            started = time.perf_counter()
            measured.outputs = run()
            measured.seconds.append(time.perf_counter() - started)


class _Transformers:
    """`generate`, one prompt at a time or in padded batches."""

    def __init__(self, model: str, dtype: str, device: str, threads: int | None) -> None:
        import torch
        import transformers

        if threads is not None:
            torch.set_num_threads(threads)
        library: Any = transformers  # typed in parts only
        library.logging.set_verbosity_error()
        library.utils.logging.disable_progress_bar()
        self._torch = torch
        try:
            self._model = library.AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype))
        except (OSError, ValueError) as error:
            raise CliError(f"transformers cannot load {model}: {error}") from None
        self._model = self._model.to(device).eval()
        self._device = device
        # Without an end-of-sequence token it generates up to the limit, as with ignore_eos.
        self._model.generation_config = library.GenerationConfig(do_sample=False, pad_token_id=0)

    def one_at_a_time(self, work: Sequence[Work]) -> list[Tokens]:
        return [self._generate([item], item.out)[0] for item in work]

    def batched(self, work: Sequence[Work], size: int) -> list[Tokens]:
        """In batches sorted by the number of output tokens, which is the best case for static batches."""
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

    def __init__(self, config: EngineConfig) -> None:
        from engine import LLM

        self._llm = LLM.from_config(config)
        self.dtype = self._llm.info.dtype
        self.precision = self._llm.info.precision
        self.operators = self._llm.info.operators

    def one_at_a_time(self, work: Sequence[Work]) -> list[Tokens]:
        return [self.together([item])[0] for item in work]

    def together(self, work: Sequence[Work]) -> list[Tokens]:
        from engine import SamplingParams

        params = [SamplingParams(temperature=0.0, max_tokens=item.out, ignore_eos=True) for item in work]
        outputs = self._llm.generate([list(item.ids) for item in work], params)
        return [list(output.outputs[0].token_ids) for output in outputs]

    def draft_counts(self) -> DraftCounts:
        """Counts since the engine was loaded."""
        stats = self._llm.stats()
        return DraftCounts(
            stats.draft_proposals_total,
            stats.draft_tokens_total,
            stats.accepted_draft_tokens_total,
            stats.saved_steps_total,
            stats.generation_tokens_total,
        )

    def __enter__(self) -> "_Agon":
        return self

    def __exit__(self, *_: object) -> None:
        self._llm.close()
