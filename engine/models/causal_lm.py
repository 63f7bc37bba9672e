"""The protocol of a decoder-only language model, as the runner uses it."""

from typing import Protocol

import torch

from engine.attention.backend import AttentionShape, ForwardBatch, StateShape


class CausalLM(Protocol):
    """A loaded model: what its layers store, and its forward pass. Used by the engine thread alone."""

    @property
    def attention_shapes(self) -> tuple[AttentionShape, ...]:
        """Heads and window of each attention layer, as this process holds them; a layer's id is its index."""
        ...

    @property
    def state_shapes(self) -> tuple[StateShape, ...]:
        """States of the recurrent layers; a state's id is its index."""
        ...

    @property
    def is_capturable(self) -> bool:
        """Whether a step can be captured as a CUDA graph: forward and logits read no result on the host, and launch the
        same kernels for every step of as many tokens. False where experts or states are chosen on the host."""
        ...

    @property
    def narrows(self) -> bool:
        """Whether forward follows ForwardBatch.narrowing."""
        ...

    @property
    def vocab_size(self) -> int:
        """Number of logits in a row."""
        ...

    @property
    def max_positions(self) -> int:
        """Context length in tokens that the checkpoint supports."""
        ...

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        """Final hidden states of a step's tokens, [T, hidden], or of the rows of its narrowing, [R, hidden]; writes the
        keys, values and states of all tokens to pages."""
        ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [rows, hidden] -> [rows, vocab_size]."""
        ...
