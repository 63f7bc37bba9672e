"""The selective state space layer: its output does not depend on chunks or on other sequences in the step."""

import numpy as np
import pytest
import torch

from engine.attention.backend import ForwardBatch, HeadNorms, IntArray
from engine.attention.rotation import Rotation
from engine.kernels.cpu.state_kernels import CppStateKernels
from engine.kernels.reference import state_kernels as reference
from engine.kernels.state_kernels import StateKernels, StatesInPlace
from engine.kernels.torch_operators import TorchOperators
from engine.layers.linear import Linear
from engine.layers.mamba import Mamba, MambaWeights
from tests.engine.kernels.libraries import library

HIDDEN, CHANNELS, STATES, TAPS, RANK = 6, 8, 3, 4, 2


class NoAttention:
    """The AttentionStep of a model without attention."""

    def attend(
        self, layer_id: int, qkv: torch.Tensor, rotation: Rotation | None, head_norms: HeadNorms | None
    ) -> torch.Tensor:
        raise AssertionError("there are no attention layers")


class HeldStates:
    """States of a few sequences, outside any page."""

    def __init__(self, lengths: IntArray) -> None:
        self.lengths = lengths
        self.states = [torch.zeros(len(lengths), TAPS - 1, CHANNELS), torch.zeros(len(lengths), CHANNELS, STATES)]

    def in_place(self, state_id: int) -> StatesInPlace:
        bounds = np.concatenate(([0], np.cumsum(self.lengths))).astype(np.int32)
        return StatesInPlace(
            self.states[state_id],
            torch.arange(len(self.lengths)),
            torch.ones(len(self.lengths), dtype=torch.int32),
            torch.from_numpy(bounds),
            int(self.lengths.max()),
        )


def layer(kernels: StateKernels) -> Mamba:
    generator = torch.Generator().manual_seed(1)

    def linear(out_features: int, in_features: int, *, bias: bool = False) -> Linear:
        weight = torch.randn(out_features, in_features, generator=generator) * 0.5
        return Linear.bind(TorchOperators(), weight, torch.randn(out_features, generator=generator) if bias else None)

    weights = MambaWeights(
        in_proj=linear(2 * CHANNELS, HIDDEN),
        conv=torch.randn(CHANNELS, 1, TAPS, generator=generator),
        conv_bias=torch.randn(CHANNELS, generator=generator),
        x_proj=linear(RANK + 2 * STATES, CHANNELS),
        dt_proj=linear(CHANNELS, RANK, bias=True),
        a_log=torch.randn(CHANNELS, STATES, generator=generator),
        d=torch.randn(CHANNELS, generator=generator),
        kernels=kernels,
        out_proj=linear(HIDDEN, CHANNELS),
    )
    return Mamba(0, 1, weights)


def run(mamba: Mamba, x: torch.Tensor, states: HeldStates) -> torch.Tensor:
    tokens = torch.zeros(len(x), dtype=torch.int64)
    return mamba(x, None, ForwardBatch(tokens, tokens, NoAttention(), states))


@pytest.mark.parametrize("kernels", [reference, CppStateKernels(library(), torch.float32)], ids=["torch", "cpp"])
def test_sequences_side_by_side_in_chunks_equal_each_one_alone_and_whole(kernels: StateKernels) -> None:
    alone, mamba = layer(reference), layer(kernels)
    inputs = torch.randn(3, 20, HIDDEN, generator=torch.Generator().manual_seed(2))
    whole = [run(alone, inputs[index], HeldStates(np.array([20]))) for index in range(3)]
    states = HeldStates(np.array([0, 0, 0]))
    done = np.zeros(3, np.int64)
    outputs: list[list[torch.Tensor]] = [[], [], []]
    for lengths in ([1, 7, 2], [5, 1, 1], [1, 2, 15], [13, 10, 2]):
        states.lengths = np.array(lengths)
        parts = [inputs[index, done[index] : done[index] + length] for index, length in enumerate(lengths)]
        result = run(mamba, torch.cat(parts), states).split(lengths)
        for index, part in enumerate(result):
            outputs[index].append(part)
        done += states.lengths
    assert done.tolist() == [20, 20, 20]
    for index in range(3):
        torch.testing.assert_close(torch.cat(outputs[index]), whole[index], atol=1e-5, rtol=1e-5)
