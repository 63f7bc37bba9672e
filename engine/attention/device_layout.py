"""Which rows a step of the device runner computes: what its attention is told, in place of the page tables that other
backends take from the host.

T = tokens of the step, B = rows (sequences, with padding).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.attention.backend import IntArray
from engine.kernels.prompt_libraries import PromptRows


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """As StepKernels.attend_shared_prefix takes it: groups of adjacent rows that begin with the same pages."""

    group_starts: torch.Tensor  #: [groups + 1] int32
    prefix_lengths: torch.Tensor  #: [B] int32


@dataclass(frozen=True, slots=True)
class PromptLengths:
    """The rows after the decodes of a DeviceLayout, on the host."""

    queries: IntArray  #: [rows]: tokens of the step
    contexts: IntArray  #: [rows], including them


@dataclass(frozen=True, slots=True)
class DeviceLayout:
    """Which tokens of which slots a step computes; made by the runner. Tokens of a row are adjacent, and the last ones
    of its context. A padding row has slot -1 and context length 0."""

    slots: torch.Tensor  #: [B] int32
    context_lengths: torch.Tensor  #: [B] int32, including the step's tokens
    page_places: Sequence[torch.Tensor]  #: per attention type [T] int64: page * page_tokens + offset, or -1
    num_decodes: int  #: number of rows at the beginning that have one token each
    query_starts: torch.Tensor | None  #: [B - decodes + 1] int32: first token of each further row, counted from 0
    max_queries: int  #: largest number of tokens of a row
    max_context: int  #: bound on the context lengths of the rows after the decodes; 0: there are none
    shared: SharedPrefix | None = None  #: only if all rows are decodes
    prompt_lengths: PromptLengths | None = None  #: None: there are only decodes

    @property
    def prompts(self) -> PromptRows:
        """The rows after the decodes, as libraries take them."""
        assert self.query_starts is not None
        assert self.prompt_lengths is not None
        rows, lengths = slice(self.num_decodes, None), self.prompt_lengths
        return PromptRows(
            self.slots[rows], self.context_lengths[rows], self.query_starts, lengths.queries, lengths.contexts
        )
