"""Chooses what attends prompts, layer by layer: our kernel, or an installed library that computes the same and was
measured to be faster. Done once, between loading and the first step. Decodes are always ours.

A library that fails in any way is not used, and the log says why; it never keeps a model from being served.
"""

import logging
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from engine.attention.backend import AttentionShape
from engine.attention.device_backend import split_workspace
from engine.config import PromptAttentionName
from engine.kernels.hardware import num_multiprocessors
from engine.kernels.operators import WorkTimer
from engine.kernels.prompt_libraries import PromptCase, PromptKernel, PromptLibrary
from engine.kernels.step_kernels import AttentionOptions, StepKernels
from engine.runner.device.prompt_trials import PromptTrial, checked_lengths

_log = logging.getLogger(__name__)

#: Tokens of a prompt and cached tokens before it, as they are timed.
TIMED_LENGTHS = ((512, 0), (512, 8192), (2048, 0), (2048, 8192))
#: Largest difference from our result of one head for one token, as a share of its length: a few roundings to 16 bits.
TOLERANCE = 0.02
#: A library must take less than this share of our kernel's time: what is below it may be noise.
_LEAST_GAIN = 0.95
#: Finite in 16 bits, and ruins a result that takes a trace of it.
_GARBAGE = 1e4
#: Pages of the trial with the longest contexts, which share them.
_TRIAL_PAGES = 512


@dataclass(frozen=True, slots=True)
class StepBounds:
    """The largest steps and contexts."""

    max_rows: int
    max_tokens: int
    max_context: int


@dataclass(frozen=True, slots=True)
class PromptAttention:
    """The choice for all layers of a model."""

    kernels: Mapping[PromptCase, PromptKernel] = field(default_factory=dict)  #: other cases are ours
    summary: str = ""  #: for logs and metrics; empty: all prompts are ours


@dataclass(frozen=True, slots=True)
class PromptChoice:
    """Compares libraries with our kernel."""

    kernels: StepKernels
    timer: WorkTimer | None  #: None: nothing can be measured
    bounds: StepBounds
    device: torch.device
    #: Pages may hold what layers of other types have written in another data type, so any bits.
    has_other_pages: bool

    def choose(
        self, asked: PromptAttentionName, cases: Sequence[PromptCase], libraries: Sequence[PromptLibrary]
    ) -> PromptAttention:
        """asked: "auto": the fastest; a library's name: that one, if it computes what ours does."""
        if asked == "triton" or not cases:
            return PromptAttention()
        candidates = [library for library in libraries if asked in ("auto", library.name)]
        if asked != "auto" and not candidates:
            _log.warning("prompts: %s was asked for and cannot be used (`agon doctor` says why)", asked)
        kernels: dict[PromptCase, PromptKernel] = {}
        names: dict[PromptCase, str] = {}
        distinct = tuple(dict.fromkeys(cases))
        for case in distinct if candidates else ():
            chosen = self._choose(case, candidates, is_measured=asked == "auto")
            if chosen is not None:
                names[case], kernels[case] = chosen
        return PromptAttention(kernels, _summary(names, len(distinct)))

    def _choose(
        self, case: PromptCase, libraries: Sequence[PromptLibrary], *, is_measured: bool
    ) -> tuple[str, PromptKernel] | None:
        """The name and the kernel of the library that attends the prompts of a case; None: ours does."""
        least, chosen = _LEAST_GAIN, None
        for library in libraries:
            try:
                kernel = self._usable(case, library)
                if kernel is None:
                    continue
                share = self._share_of_our_time(case, kernel, library.name) if is_measured else 0.0
            except Exception as error:  # whatever a library raises
                _log.warning("prompts: %s is not used for %s: it failed: %s", library.name, case, error)
                continue
            if share < least:
                least, chosen = share, (library.name, kernel)
        _log.info("prompts: %s attends %s", chosen[0] if chosen else "our kernel", case)
        return chosen

    def _usable(self, case: PromptCase, library: PromptLibrary) -> PromptKernel | None:
        """The library's kernel, if it computes what ours does."""
        reason = library.why_not(case)
        if reason is not None:
            _log.info("prompts: %s is not used for %s: %s", library.name, case, reason)
            return None
        kernel = library.bind(case)
        error = max(self._error(kernel, trial, case) for trial in self._trials(case))
        if error < TOLERANCE:
            return kernel
        _log.error(
            "prompts: %s is not used for %s: its results differ from ours by %.3f of their length (%.3f is allowed)",
            *(library.name, case, error, TOLERANCE),
        )
        return None

    def _trials(self, case: PromptCase) -> tuple[PromptTrial, ...]:
        """Rows of many kinds with garbage around them, and the largest step at the end of the longest contexts."""
        bounds = self.bounds
        make = partial(PromptTrial.make, case, device=self.device, max_context=bounds.max_context)
        num_rows = max(1, min(bounds.max_rows, bounds.max_tokens // 2))
        num_tokens = min(bounds.max_context, max(1, bounds.max_tokens // num_rows))
        return (
            make(checked_lengths(case, bounds.max_context), garbage=torch.nan if self.has_other_pages else _GARBAGE),
            make([(num_tokens, bounds.max_context)] * num_rows, max_pages=_TRIAL_PAGES),
        )

    def _error(self, kernel: PromptKernel, trial: PromptTrial, case: PromptCase) -> float:
        """The largest difference of a head's result for a token, as a share of its length; infinite where a result is
        not a number."""
        result, expected = trial.new_output(), trial.new_output()
        kernel.begin(trial.rows, trial.page_table)(trial.query, trial.pages, result)
        self._ours(case, trial, expected)()
        difference = (result.float() - expected.float()).norm(dim=-1) / expected.float().norm(dim=-1)
        return float(difference.nan_to_num(torch.inf).max())

    def _share_of_our_time(self, case: PromptCase, kernel: PromptKernel, name: str) -> float:
        """The library's time as a share of ours, the mean of a few prompts. What a step prepares once for all layers is
        not timed."""
        assert self.timer is not None
        bounds = self.bounds
        shares = {}
        for wanted, prefix in TIMED_LENGTHS:
            num_tokens = min(wanted, bounds.max_tokens, bounds.max_context)
            length = num_tokens, min(num_tokens + prefix, bounds.max_context)
            if length in shares:
                continue
            trial = PromptTrial.make(case, [length], bounds.max_context, self.device)
            output = trial.new_output()
            attend = kernel.begin(trial.rows, trial.page_table)
            own_s = self.timer(self._ours(case, trial, output))
            library_s = self.timer(partial(attend, trial.query, trial.pages, output))
            shares[length] = library_s / own_s
            _log.info(
                "prompts: %d tokens, contexts of %d, %s: %.1f us by our kernel, %.1f by %s",
                *(*length, case, 1e6 * own_s, 1e6 * library_s, name),
            )
        return statistics.mean(shares.values())

    def _ours(self, case: PromptCase, trial: PromptTrial, output: torch.Tensor) -> Callable[[], None]:
        """Our kernel over a trial, with the workspace that steps have."""
        shape = AttentionShape(case.num_heads, case.num_kv_heads, case.head_dim)
        bounds = self.bounds
        return partial(
            self.kernels.attend_mixed,
            trial.query,
            trial.pages,
            trial.page_table,
            trial.rows.slots,
            trial.rows.context_lengths,
            trial.rows.query_starts,
            output,
            AttentionOptions(case.scale, case.window, case.softcap),
            split_workspace(shape, bounds.max_rows, bounds.max_context, num_multiprocessors(self.device), self.device),
            trial.rows.max_queries,
            trial.rows.max_context,
        )


def _summary(names: Mapping[PromptCase, str], num_cases: int) -> str:
    """Such as "prompts by flashinfer for 1 of 2 kinds of layers"."""
    parts = []
    for name in sorted(set(names.values())):
        count = list(names.values()).count(name)
        parts.append(
            f"prompts by {name}" + (f" for {count} of {num_cases} kinds of layers" if count < num_cases else "")
        )
    return ", ".join(parts)
