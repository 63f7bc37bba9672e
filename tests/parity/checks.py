"""What every architecture is asked: 64 greedy tokens, one by one those of transformers, under settings that make pages,
chunks, preemption and prefixes matter. Prompts are shorter and longer than window, chunk, page and checkpoint.
"""

import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from engine.kernels.torch_operators import TorchOperators
from engine.llm import LLM
from engine.memory.policies import policy_for
from engine.memory.spec import LayerType, PoolPlan
from engine.sampling_params import SamplingParams
from tests.engine.checkpoints import TinyModel, save
from tests.engine.chunked_logits import chunked_logits
from tests.engine.small_engines import load, tokens_of
from tests.engine.stepper import random_prompt
from tests.engine.swap_costs import swapping_costs_nothing

NUM_TOKENS = 64
PROMPTS = [random_prompt(index, length) for index, length in enumerate((3, 29, 90, 47))]
GREEDY = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True)
#: Tokens between two states that recurrent layers keep: fewer than in most prompts.
CHECKPOINT_TOKENS = 16
#: Pools of so many of the longest sequence, tried in turn until one preempts.
_POOLS = (3.2, 2.5, 2.0, 1.6, 1.3, 1.15, 1.05)
_CHUNK = 8  #: tokens of a step where the pool is small: layers with a window hold those beside the window
_LONGEST = max(map(len, PROMPTS)) + NUM_TOKENS
_TOLERANCE = 1e-4


class Parity:
    """The checks of one model; each raises AssertionError, or returns a word for the table."""

    def __init__(self, model: TinyModel) -> None:
        self._model = model
        self._expected = [model.greedy(prompt, NUM_TOKENS) for prompt in PROMPTS]

    def logits(self) -> str:
        """The largest difference of a logit, whatever the chunks."""
        prompt = random_prompt(9, 50)
        exact = self._model.logits(prompt)
        largest = 0.0
        for page_tokens, chunk in ((16, 50), (4, 8)):
            with torch.inference_mode():
                found = chunked_logits(
                    self._model.folder, prompt, page_tokens=page_tokens, chunk=chunk, operators=TorchOperators()
                )
            largest = max(largest, float((found - exact).abs().max()))
        assert largest <= _TOLERANCE, f"logits differ by {largest:.1e}"
        return f"{largest:.0e}"

    def batch(self, page_tokens: int, max_batched_tokens: int) -> str:
        """Mixed lengths side by side."""
        llm = self._load(page_tokens=page_tokens, max_batched_tokens=max_batched_tokens)
        self._check(tokens_of(llm, PROMPTS, GREEDY))
        return "equal"

    def preempted(self, swap_bytes: int) -> str:
        """A pool so small that requests are preempted, and recomputed or swapped."""
        plan = self._load()._core._cache.plan
        for share in _POOLS:
            pool_bytes = _bytes_of(plan, share, lambda kind: policy_for(kind, _CHUNK).num_pages(_LONGEST))
            llm = self._load(kv_cache_bytes=pool_bytes, swap_bytes=swap_bytes, max_batched_tokens=_CHUNK)
            with swapping_costs_nothing():
                self._check(tokens_of(llm, PROMPTS, GREEDY))
            stats = llm.stats()
            llm._core.check_integrity()
            if stats.preemptions_total:
                assert (stats.swap_preemptions_total > 0) == (swap_bytes > 0)
                return f"equal, {stats.preemptions_total}"
        return "equal, none"  # what layers with a window hold does not grow: who was admitted can go on

    def prefixes(self) -> str:
        """The same prompts cold, warm, and after others have taken their pages."""
        plan = self._load()._core._cache.plan
        pool_bytes = _bytes_of(plan, 6.0, lambda kind: policy_for(kind).num_entries(_LONGEST, ()))
        llm = self._load(kv_cache_bytes=pool_bytes, max_batched_tokens=_CHUNK)
        self._check(tokens_of(llm, PROMPTS, GREEDY))
        self._check(tokens_of(llm, PROMPTS, GREEDY))
        num_found = llm.stats().prefix_hit_tokens_total
        assert num_found > 0, "no prefix was found"
        for seed in range(20, 60):
            tokens_of(llm, [random_prompt(seed, 100)], replace(GREEDY, max_tokens=4))
        self._check(tokens_of(llm, PROMPTS, GREEDY))
        llm._core.check_integrity()
        return f"equal, {num_found} found"

    def replayed(self) -> str:
        """Every cut of an answer, continued from the tokens before it."""
        core = self._load(max_running=16)._core
        prompt, answer = PROMPTS[1], self._expected[1]
        for cut in range(NUM_TOKENS):
            core.add_request(str(cut), prompt, GREEDY, resume_token_ids=answer[:cut])
        rests: dict[str, list[int]] = {str(cut): [] for cut in range(NUM_TOKENS)}
        while not core.is_idle:
            for delta in core.step():
                rests[delta.request_id] += delta.token_ids
        assert all(answer[: int(cut)] + rest == answer for cut, rest in rests.items()), "a replayed answer differs"
        return f"equal, {NUM_TOKENS} cuts"

    def _load(self, **settings: object) -> LLM:
        return load(self._model.folder, **{"checkpoint_tokens": CHECKPOINT_TOKENS, "max_running": 4, **settings})

    def _check(self, found: Sequence[Sequence[int]]) -> None:
        for which, (ours, theirs) in enumerate(zip(found, self._expected, strict=True)):
            if list(ours) != theirs:
                place = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
                raise AssertionError(f"prompt {which} differs from its token {place} on")


CHECKS: dict[str, Callable[[Parity], str]] = {
    "logits": Parity.logits,
    "pages of 4, chunks of 8": lambda parity: parity.batch(4, 8),
    "pages of 16, unbounded": lambda parity: parity.batch(16, 1024),
    "recomputed": lambda parity: parity.preempted(0),
    "swapped": lambda parity: parity.preempted(1 << 22),
    "prefixes": Parity.prefixes,
    "replayed": Parity.replayed,
}


def check(name: str) -> tuple[str, dict[str, str]]:
    """The results of one variant by check."""
    torch.set_num_threads(1)
    results: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            parity = Parity(save(name, Path(folder)))
        except Exception as error:
            return name, dict.fromkeys(CHECKS, f"**{_reason(error)}**")
        for title, run in CHECKS.items():
            try:
                results[title] = run(parity)
            except AssertionError as error:
                results[title] = f"**{_reason(error)}**"
            except Exception as error:
                traceback.print_exc()
                results[title] = f"**{_reason(error)}**"
    return name, results


def _reason(error: BaseException) -> str:
    return " ".join(f"{error}".split())[:80] or type(error).__name__


def _bytes_of(plan: PoolPlan, share: float, pages: Callable[[LayerType], int]) -> int:
    """A pool that holds `share` of the longest sequence. pages: those of one sequence in a layer type."""
    held = sum(pages(kind) * kind.small_page_bytes for kind in plan.types)
    return int(share * held) + 2 * plan.large_page_bytes
