"""What the runner needs of any decoder-only language model."""

from typing import Protocol

import torch

from engine.attention.backend import AttentionShape, ForwardBatch, StateShape


class CausalLM(Protocol):
    @property
    def attention_shapes(self) -> tuple[AttentionShape, ...]:
        """Heads of each attention layer; a layer's id is its index."""
        ...

    @property
    def state_shapes(self) -> tuple[StateShape, ...]:
        """States of the recurrent layers; a state's id is its index."""
        ...

    @property
    def capturable_rows(self) -> range:
        """Of how many tokens steps can be captured as CUDA graphs, because forward and logits look at no number on the
        host and launch the same for every such step. Empty where experts or states are chosen on the host."""
        ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def max_positions(self) -> int:
        """Tokens of context that the checkpoint can tell apart."""
        ...

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        """Final hidden states of a step's tokens, [T, hidden]; keys and values go to their pages."""
        ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [rows, hidden] -> [rows, vocab_size]."""
        ...
