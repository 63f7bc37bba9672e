"""A tensor of a GGUF file takes about its own bytes in the memory of the C++ operators."""

from collections.abc import Callable

import gguf
import numpy as np
import pytest
import torch

from engine.formats.gguf.blocks import BLOCKS
from engine.kernels.choice import choose_operators
from engine.kernels.cpu.operators import CppOperators
from engine.kernels.cpu.weight_memory import PrivateMemory
from engine.kernels.quantised import QuantisedMatrix
from tests.engine.formats import gguf_writer as writer

OUTPUTS, INPUTS = 48, 512


def matrix_of(pack: Callable[[writer.Floats], writer.Packed]) -> tuple[QuantisedMatrix, int, torch.Tensor]:
    """A matrix, its bytes in a file, and the weights that it holds."""
    values = np.random.default_rng(3).standard_normal((OUTPUTS, INPUTS), dtype=np.float32)
    rows = [pack(row) for row in values]
    block = BLOCKS[writer.KINDS[pack]]
    assert block.decode is not None
    raw = torch.frombuffer(bytearray(b"".join(raw for raw, _ in rows)), dtype=torch.uint8)
    weights = torch.from_numpy(np.stack([back for _, back in rows]))
    return block.decode(raw.view(OUTPUTS, -1, block.num_bytes)), len(raw), weights


@pytest.mark.parametrize("pack", [writer.q4_0, writer.q4_k, writer.q5_k, writer.q6_k, writer.q8_0])
def test_memory_is_that_of_the_file(pack: Callable[[writer.Floats], writer.Packed]) -> None:
    matrix, num_bytes, weights = matrix_of(pack)
    operators = choose_operators(torch.device("cpu"), torch.float32, 1, allow_compiled=True)
    assert isinstance(operators, CppOperators)
    memory = operators.weight_memory = PrivateMemory()
    multiply = operators.linear(matrix, None)
    assert sum(span.num_bytes for span in memory.spans) <= 1.13 * num_bytes
    torch.testing.assert_close(matrix.dequantised(), weights, atol=1e-5, rtol=1e-5)
    x = torch.randn(3, INPUTS, generator=torch.Generator().manual_seed(4))
    wanted = x @ weights.T
    torch.testing.assert_close(multiply(x), wanted, atol=0.02 * float(wanted.abs().max()), rtol=0)


@pytest.mark.parametrize("kind", ["Q4_1", "Q5_0", "Q5_1"])
def test_memory_of_types_that_the_gguf_package_writes(kind: str) -> None:
    number = gguf.GGMLQuantizationType[kind]
    raw = gguf.quantize(np.random.default_rng(3).standard_normal((OUTPUTS, INPUTS), dtype=np.float32), number)
    block = BLOCKS[number.value]
    assert block.decode is not None
    operators = choose_operators(torch.device("cpu"), torch.float32, 1, allow_compiled=True)
    assert isinstance(operators, CppOperators)
    memory = operators.weight_memory = PrivateMemory()
    operators.linear(block.decode(torch.from_numpy(raw).view(OUTPUTS, -1, block.num_bytes)), None)
    assert sum(span.num_bytes for span in memory.spans) <= 1.13 * raw.nbytes
