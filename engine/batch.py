"""The values that scheduler and runner exchange: a StepPlan out, a StepOutput back. Plain data, no torch.

Values of which every step makes one for each sequence are not frozen, because that would take five times as long; they
are not changed either.

The runner keeps one row of page ids per (slot, layer type) in preallocated tensors; a plan carries only changes.
A slot belongs to one running sequence from its first step until it finishes or is preempted; slot numbers lie in [0,
max_running). A sequence's first step in a slot brings its whole page table (an update from entry 0), which replaces the
row. A launched step may still compute for an ended sequence when its slot is given to another sequence: page tables and
newest tokens change in the order of the launches. Page id 0 of every type is the null page: never written, never
allocated.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.prompt_reading import PooledRows, RowsRead, ScoredRows
from engine.sampling_params import SamplingParams

LayerTypeName = str
SequenceId = int

#: In ScheduledSequence.token_ids: the token that this slot samples in the step before. The host does not know it when
#: the step is planned; the runner keeps the newest token of every slot and inserts it.
PENDING_TOKEN = -1
#: In SampledToken.token_id: there is none, because the largest logit of the row is NaN or infinite. The request fails;
#: a step that was launched before the host knows computes some token of the vocabulary in its place.
NO_TOKEN = -1
#: In ScheduledSequence.adapter: the sequence has none.
NO_ADAPTER = 0


@dataclass(frozen=True, slots=True)
class PageCopy:
    """Copy a whole small page before the step writes: the copy-on-write of a shared last page.

    Within one plan no page is both a source and a destination, and no destination occurs twice: all copies may run at
    once.
    """

    layer_type: LayerTypeName
    src: int
    dst: int


@dataclass(frozen=True, slots=True)
class PageMove:
    """Move one small page between the pool and its mirror in host memory: out of the pool, or back into it.

    Within one plan no host page is written twice and no device page is written twice; all moves of a direction may run
    at once.
    """

    layer_type: LayerTypeName
    device_page: int
    host_page: int


@dataclass(frozen=True, slots=True)
class PageTableUpdate:
    """Entries [start, start + len(page_ids)) of one slot's page table are now these small page ids.

    A sequence that is new in its slot has an update from entry 0 in the step that computes its first tokens. Runners
    forget what they knew of the slot then.
    """

    slot: int
    layer_type: LayerTypeName
    start: int
    page_ids: tuple[int, ...]


@dataclass(slots=True)
class ScheduledSequence:
    """One sequence's share of a step: compute tokens [start, start + len(token_ids)) and maybe sample after the last.

    Whether this is prefill or decode is only a matter of length. `num_samples` is 0 while a prompt is not yet complete,
    1 normally, for beams too, and n when a prompt with n parallel samples completes (all sampled from the same last
    row). Only the last of token_ids can be PENDING_TOKEN; then the slot was in the step before and sampled one token
    there.

    With proposed tokens (`num_drafts` k > 0) the last k of token_ids are guesses, and a token is sampled after each of
    the last k + 1 tokens, with the seed of the sequence and output indices that count up from output_index. None of
    token_ids is PENDING_TOKEN then, and the slot samples no token that the next step could continue from unseen.
    """

    sequence_id: SequenceId
    slot: int
    token_ids: tuple[int, ...]
    start: int
    num_samples: int
    params: SamplingParams
    seeds: tuple[int, ...]  #: one per sample, 64-bit unsigned
    output_index: int  #: how many output tokens the sequence has: the counter of its random numbers
    #: All tokens of the sequence so far, if its params need them and its slot samples for the first time; else None.
    #: The runner keeps them and appends the tokens that the slot samples. They are sent again after a step with several
    #: samples, because only the host knows which sample belongs to this sequence, or how many drafts were right.
    history: tuple[int, ...] | None = None
    num_prompt_tokens: int = 0  #: how many of the sequence's tokens are its prompt; only layers with a budget need it
    scored: ScoredRows | None = None  #: rows that give log probabilities of prompt tokens
    pooled: PooledRows | None = None  #: rows whose hidden states are summed
    banned_token_ids: tuple[int, ...] = ()  #: each would complete one of params.bad_words_ids that the output begins
    adapter: int = NO_ADAPTER  #: the slot of its adapter, which is no slot of a sequence
    num_drafts: int = 0  #: how many of token_ids, at their end, are proposed and not known to be right

    @property
    def drafts(self) -> tuple[int, ...]:
        """The proposed tokens."""
        return self.token_ids[len(self.token_ids) - self.num_drafts :] if self.num_drafts else ()

    @property
    def has_own_newest_token(self) -> bool:
        """Whether its only sample stays in its slot: neither one of several parallel samples, whose slots are known
        after the fork, nor one after a proposed token, which may be wrong."""
        return self.num_samples == 1


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Everything the runner must do in one step, in this order: page tables, swap-outs, swap-ins, copies, forward,
    sample.

    So a page that is swapped out may be reused by everything after it, and a page that is swapped in may be copied.
    """

    step: int
    page_table_updates: tuple[PageTableUpdate, ...]
    copies: tuple[PageCopy, ...]
    sequences: tuple[ScheduledSequence, ...]  #: decodes (one token) first
    swap_outs: tuple[PageMove, ...] = ()
    swap_ins: tuple[PageMove, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Tokens that the step computes."""
        return sum(len(sequence.token_ids) for sequence in self.sequences)

    @property
    def needs_masks(self) -> bool:
        """Whether TokenMasks follow: some sequence that samples has a constraint or a thinking budget."""
        return any([sequence.params.needs_masks and sequence.num_samples > 0 for sequence in self.sequences])


@dataclass(frozen=True, slots=True, eq=False)
class TokenMasks:
    """Which tokens a step may sample, for those of its draws that are not free. N = such draws, V = vocabulary.

    They follow their plan, because they depend on tokens that steps in flight sample.
    """

    draws: NDArray[np.int64]  #: [N], ascending: index of the draw among all tokens that the step samples
    words: NDArray[np.int32]  #: [N, ceil(V / 32)]: bit t % 32 of word t // 32: token t may be sampled


@dataclass(slots=True)
class SampledToken:
    """One sampled token, or NO_TOKEN. logprob fields are filled only where the request asked for them.

    In a beam search nothing is sampled: top_logprobs has the tokens with which the beam may go on, with their log
    probabilities after biases and penalties (engine/sampling/beam_candidates.py), and token_id is the first of them.
    """

    token_id: int
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()


def num_accepted(drafts: Sequence[int], samples: Sequence[SampledToken]) -> int:
    """How many leading drafts equal the tokens sampled in their places; the samples after them follow a wrong token.
    samples: one more than drafts."""
    for index, draft in enumerate(drafts):
        if samples[index].token_id != draft:
            return index
    return len(drafts)


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What the runner sampled, in the order of StepPlan.sequences; an empty tuple where num_samples was 0."""

    step: int
    samples: tuple[tuple[SampledToken, ...], ...]
    compute_s: float = 0.0  #: seconds of the step without its page moves, and without waiting for another step
    move_s: float = 0.0  #: seconds of its page moves, likewise
    #: What was read of the prompts, in the order of StepPlan.sequences; empty where no sequence has rows to be read.
    read: tuple[RowsRead | None, ...] = ()
