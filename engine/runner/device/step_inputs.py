"""The inputs of one step about its sequences, put into the step's upload.

Two forms: a decode step has one token per sequence, and its inputs fit into the columns that graphs read; a mixed step
also sends every token. Pending tokens, which the host has not seen yet, are taken from the device.

T = tokens of the step, B = its sequences, S = slots.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch

from engine.attention.backend import IntArray, StepLayout
from engine.attention.device_layout import PromptLengths
from engine.batch import PENDING_TOKEN, ScheduledSequence
from engine.runner.device.draws import Draw
from engine.runner.device.transfer import Upload


@dataclass(frozen=True, slots=True)
class Shares:
    """The sequences of a step as arrays, all [B]."""

    slots: IntArray
    starts: IntArray
    lengths: IntArray  #: number of tokens that the step computes
    num_samples: IntArray

    @classmethod
    def of(cls, sequences: Sequence[ScheduledSequence]) -> "Shares":
        """The arrays of these sequences, in their order."""
        count = len(sequences)
        return cls(
            slots=np.fromiter((s.slot for s in sequences), np.int64, count),
            starts=np.fromiter((s.start for s in sequences), np.int64, count),
            lengths=np.fromiter((len(s.token_ids) for s in sequences), np.int64, count),
            num_samples=np.fromiter((s.num_samples for s in sequences), np.int64, count),
        )

    def ordered(self, order: IntArray) -> "Shares":
        """The same sequences in another order; order [B]: index of each row's sequence."""
        return Shares(self.slots[order], self.starts[order], self.lengths[order], self.num_samples[order])

    @property
    def num_decodes(self) -> int:
        """Number of sequences at the beginning that compute one token each. A plan has them before all others."""
        is_longer = self.lengths > 1
        return int(is_longer.argmax()) if is_longer.any() else len(is_longer)

    @property
    def is_decode(self) -> bool:
        """Whether every sequence computes one token."""
        return self.num_decodes == len(self.lengths)

    @property
    def max_prompt_context(self) -> int:
        """The longest context after the decodes, in tokens; 0: there are only decodes."""
        count = self.num_decodes
        return int((self.starts + self.lengths)[count:].max(initial=0))

    @property
    def prompt_lengths(self) -> PromptLengths:
        """The sequences after the decodes."""
        count = self.num_decodes
        return PromptLengths(self.lengths[count:], (self.starts + self.lengths)[count:])


@dataclass(frozen=True, slots=True)
class DecodeInputs:
    """Inputs of a decode step that are not in columns: tokens that the host knows, e.g. after a swap or a recompute."""

    known_slots: torch.Tensor  #: [n] int64: slots whose token the host sends
    known_tokens: torch.Tensor  #: [n] int64

    @classmethod
    def send(
        cls, upload: Upload, sequences: Sequence[ScheduledSequence], shares: Shares, num_rows: int
    ) -> "DecodeInputs":
        """Write slots and starts into their columns, and put known tokens into the upload. num_rows: B with padding."""
        count = len(sequences)
        slots, starts = upload.column("slots"), upload.column("starts")
        slots[:count], slots[count:num_rows] = shares.slots, -1
        starts[:count], starts[count:num_rows] = shares.starts, 0
        tokens = np.fromiter((s.token_ids[0] for s in sequences), np.int64, count)
        is_known = tokens != PENDING_TOKEN
        return cls(upload.put(shares.slots[is_known]), upload.put(tokens[is_known]))

    def write_known(self, last_tokens: torch.Tensor) -> None:
        """Write the known tokens into last_tokens [S + 1]."""
        if len(self.known_slots):
            last_tokens.index_copy_(0, self.known_slots, self.known_tokens)


@dataclass(frozen=True, slots=True)
class MixedInputs:
    """Inputs of a step with prompts, or with more than one token of a sequence."""

    token_ids: torch.Tensor  #: [T] int64
    positions: torch.Tensor  #: [T] int64
    token_slots: torch.Tensor  #: [T] int64: slot of each token's sequence
    slots: torch.Tensor  #: [B] int32
    starts: torch.Tensor  #: [B] int32
    context_lengths: torch.Tensor  #: [B] int32
    query_starts: torch.Tensor  #: [B + 1] int32
    #: [B - decodes + 1] int32: query_starts of the sequences after the decodes, relative to the first of their tokens.
    prompt_starts: torch.Tensor
    pending_places: torch.Tensor  #: [n] int64: rows of pending tokens
    pending_slots: torch.Tensor  #: [n] int64
    max_queries: int

    @classmethod
    def send(cls, upload: Upload, sequences: Sequence[ScheduledSequence], shares: Shares) -> "MixedInputs":
        """Put all inputs into the upload."""
        ends = np.cumsum(shares.lengths)
        tokens = np.fromiter(chain.from_iterable(s.token_ids for s in sequences), np.int64, int(ends[-1]))
        is_pending = tokens[ends - 1] == PENDING_TOKEN
        layout = StepLayout(shares.starts, shares.lengths, {})
        query_starts = np.concatenate(([0], ends)).astype(np.int32)
        return cls(
            token_ids=upload.put(tokens),
            positions=upload.put(layout.positions),
            token_slots=upload.put(np.repeat(shares.slots, shares.lengths)),
            slots=upload.put(shares.slots.astype(np.int32)),
            starts=upload.put(shares.starts.astype(np.int32)),
            context_lengths=upload.put((shares.starts + shares.lengths).astype(np.int32)),
            query_starts=upload.put(query_starts),
            prompt_starts=upload.put(query_starts[shares.num_decodes :] - shares.num_decodes),
            pending_places=upload.put((ends - 1)[is_pending]),
            pending_slots=upload.put(shares.slots[is_pending]),
            max_queries=int(shares.lengths.max()),
        )

    def read_pending(self, last_tokens: torch.Tensor) -> None:
        """Replace pending tokens in token_ids by the newest tokens of their slots, from last_tokens [S + 1]."""
        if len(self.pending_places):
            self.token_ids.index_copy_(0, self.pending_places, last_tokens.index_select(0, self.pending_slots))

    def page_places(self, table: torch.Tensor, page_tokens: int) -> torch.Tensor:
        """Where the step's keys and values are stored in one layer type: [T] int64, page * page_tokens + offset."""
        pages = table[self.token_slots, self.positions // page_tokens].long()
        return pages * page_tokens + self.positions % page_tokens


@dataclass(frozen=True, slots=True)
class DrawInputs:
    """The rows that draws read, and the slots that their tokens go to."""

    rows: torch.Tensor  #: [draws] int64: row of hidden states or logits
    slots: torch.Tensor  #: [draws] int64: index in last_tokens; num_slots: the token is not kept

    @classmethod
    def send(cls, upload: Upload, rows: Sequence[int], draws: Sequence[Draw], num_slots: int) -> "DrawInputs":
        """Put rows and slots into the upload. rows: the row that each draw reads."""
        slots = [draw.sequence.slot if draw.is_newest_token else num_slots for draw in draws]
        return cls(upload.put(np.array(rows, np.int64)), upload.put(np.array(slots, np.int64)))


@dataclass(frozen=True, slots=True)
class DrawParameters:
    """Where the sampling parameters of draws are, in a step whose draws are not the rows of a graph."""

    slots: torch.Tensor  #: [draws] int32: slot of the draw's sequence
    starts: torch.Tensor  #: [draws] int32: position of the token that the draw follows
    seeded: torch.Tensor  #: [n] int64: draws with a seed that is not their slot's: samples of one prompt
    seeds: torch.Tensor  #: [n] int64

    @classmethod
    def send(cls, upload: Upload, draws: Sequence[Draw], shares: Shares) -> "DrawParameters":
        """Put all inputs into the upload. shares: of the step's sequences."""
        rows = np.array([draw.row for draw in draws], np.int64)
        behind = np.array([draw.sequence.num_drafts - draw.place for draw in draws], np.int64)  # tokens after its own
        seeded = np.flatnonzero([draw.sequence.num_samples > 1 and not draw.sequence.num_drafts for draw in draws])
        seeds = np.array([draws[index].seed for index in seeded.tolist()], np.uint64).view(np.int64)
        return cls(
            slots=upload.put(shares.slots[rows].astype(np.int32)),
            starts=upload.put(((shares.starts + shares.lengths - 1)[rows] - behind).astype(np.int32)),
            seeded=upload.put(seeded),
            seeds=upload.put(seeds),
        )

    def write_seeds(self, seeds: torch.Tensor) -> None:
        """Replace the seeds [draws or more] int64 of samples of one prompt."""
        if len(self.seeded):
            seeds.index_copy_(0, self.seeded, self.seeds)
