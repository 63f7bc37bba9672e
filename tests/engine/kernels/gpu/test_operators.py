"""The CUDA operators equal the torch operators, one by one and in whole models."""

from collections.abc import Callable

import pytest
import torch

from engine.errors import OperatorsUnavailable
from engine.kernels.choice import choose_operators
from engine.kernels.gpu.operators import GpuOperators
from engine.kernels.operators import Operators
from engine.kernels.torch_operators import TorchOperators
from tests.engine.checkpoints import TinyModel
from tests.engine.chunked_logits import chunked_logits
from tests.engine.kernels.gpu.closeness import assert_near
from tests.engine.stepper import random_prompt


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_every_operator_gives_what_torch_s_gives(dtype: torch.dtype, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)

    def rows(num_rows: int, size: int) -> torch.Tensor:
        return torch.randn(num_rows, size, generator=generator).to(dtype).to(device)

    weight, bias, other = rows(24, 16) / 4, rows(1, 24)[0], rows(16, 12) / 4
    scales, shifts, table = rows(1, 16)[0], rows(1, 16)[0], rows(40, 16)
    x, update, ids = rows(5, 16), rows(5, 16), torch.tensor([3, 39, 0], device=device)

    def results(operators: Operators, dtype: torch.dtype) -> list[torch.Tensor]:
        norm, stream = operators.rms_norm(scales.to(dtype), 1e-5), x.to(dtype, copy=True)
        linear = operators.linear(weight.to(dtype), bias.to(dtype))
        embed, head = operators.tied_embedding(table.to(dtype))
        down = operators.linear(other.to(dtype), None)
        layer_norm = operators.layer_norm(scales.to(dtype), shifts.to(dtype), 1e-5)
        own_update = update.to(dtype)
        return [
            linear(stream),
            embed(ids),
            head(stream),
            operators.argmax(head(stream).repeat(1, 2)),
            operators.gelu_tanh_mul(stream),
            operators.gelu_tanh(stream),
            operators.gelu(stream),
            operators.relu(stream),
            linear(norm(stream, own_update)),
            layer_norm(stream, None),
            down(operators.silu_mul(linear(norm(stream, own_update)))),
            stream,
        ]

    # The torch operators run in float32, because torch does not multiply float16 on every CPU.
    for ours, expected in zip(results(GpuOperators(), dtype), results(TorchOperators(), torch.float32), strict=True):
        if expected.dtype == torch.int64:
            assert torch.equal(ours, expected)
        else:
            assert_near(ours / 8, expected.to(dtype) / 8, num_roundings=3)  # products are a few times their inputs


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "name", ["llama", "qwen3", "gemma2", "gpt2", "mamba", "jamba", "bamba", "mixtral", "qwen2-moe", "qwen3-moe"]
)
def test_a_whole_model_gives_the_logits_of_transformers(
    tiny_model: Callable[[str], TinyModel], name: str, device: torch.device
) -> None:
    """With torch attention; the prompt runs in chunks of 5, 5 and 1 tokens."""
    tiny = tiny_model(name)
    prompt = random_prompt(9, 11)
    with torch.inference_mode():
        logits = chunked_logits(tiny.folder, prompt, page_tokens=4, chunk=5, operators=GpuOperators(), device=device)
    torch.testing.assert_close(logits.cpu(), tiny.logits(prompt), atol=1e-4, rtol=0)


def test_cuda_is_served_by_triton_unless_torch_is_asked_for() -> None:
    cuda = torch.device("cuda")
    assert choose_operators(cuda, torch.bfloat16, 1, allow_compiled=True).name == "triton"
    assert choose_operators(cuda, torch.bfloat16, 1, allow_compiled=False).name == "torch"
    assert choose_operators(cuda, torch.bfloat16, 1, allow_compiled=True, has_int4_weights=True).name == "triton-int4"
    with pytest.raises(OperatorsUnavailable, match="int8 weights need the C"):
        choose_operators(cuda, torch.bfloat16, 1, allow_compiled=False, has_int8_weights=True)
