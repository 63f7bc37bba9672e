"""Every C++ operator against plain torch in float64, on every instruction set that this machine can run."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from engine.errors import OperatorsUnavailable
from engine.kernels.adapters import AdapterRows
from engine.kernels.choice import choose_operators
from engine.kernels.cpu import build as build_module
from engine.kernels.cpu.build import build
from engine.kernels.cpu.operators import CppOperators
from engine.kernels.operators import AdapterShape, Operators
from engine.kernels.torch_operators import TorchOperators
from tests.engine.kernels.adapter_cases import OUTPUTS, adapters
from tests.engine.kernels.libraries import USABLE, library

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 5e-3}


@pytest.fixture(params=["torch", *USABLE])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    dtype: torch.dtype = request.param
    return dtype


@pytest.fixture
def operators(name: str, dtype: torch.dtype) -> Operators:
    return TorchOperators() if name == "torch" else CppOperators(library(name), dtype)


def random(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def assert_near(result: torch.Tensor, wanted: torch.Tensor) -> None:
    """Close within TOLERANCE, relative to the largest magnitude."""
    tolerance = TOLERANCE[result.dtype] * float(wanted.abs().max())
    torch.testing.assert_close(result.double(), wanted.double(), atol=tolerance, rtol=0)


@pytest.mark.parametrize(
    "shape",
    [(1, 48, 96), (2, 40, 90), (3, 40, 90), (5, 40, 24), (11, 64, 200), (33, 64, 200), (130, 30, 7), (4, 17, 50)],
)
@pytest.mark.parametrize("has_bias", [True, False])
def test_linear(operators: Operators, dtype: torch.dtype, shape: tuple[int, int, int], has_bias: bool) -> None:
    rows, inputs, outputs = shape
    x, weight = random(dtype, rows, inputs), random(dtype, outputs, inputs)
    bias = random(dtype, outputs) if has_bias else None
    wanted = F.linear(x.double(), weight.double(), bias.double() if bias is not None else None)
    multiply = operators.linear(weight, bias)
    assert_near(multiply(x), wanted)
    assert_near(multiply(random(dtype, rows, inputs + 6)[:, :inputs].copy_(x)), wanted)  # strided rows


@pytest.mark.parametrize("shape", [(100, 64), (7, 17)])
def test_tied_embeddings_are_rows_of_the_heads_own_table(
    operators: Operators, dtype: torch.dtype, shape: tuple[int, int]
) -> None:
    table = random(dtype, *shape)
    embed, head = operators.tied_embedding(table)
    ids = torch.tensor([0, 6, 6, 3] * 20)
    assert torch.equal(embed(ids), table[ids])
    x = random(dtype, 3, shape[1])
    assert_near(head(x), x.double() @ table.double().T)


def test_packed_weights_do_not_refer_to_the_source(operators: Operators, dtype: torch.dtype) -> None:
    weight = torch.eye(8, dtype=dtype)
    multiply = operators.linear(weight, None)
    weight.zero_()
    assert torch.equal(multiply(torch.ones(1, 8, dtype=dtype)), torch.ones(1, 8, dtype=dtype))


@pytest.mark.parametrize("shape", [(1, 48), (3, 7), (70, 576)])
@pytest.mark.parametrize("has_update", [True, False])
def test_norms_add_the_update_to_the_stream(
    operators: Operators, dtype: torch.dtype, shape: tuple[int, int], has_update: bool
) -> None:
    weight, bias = random(dtype, shape[1]), random(dtype, shape[1] + 0).neg()
    update = random(dtype, *shape) * 3 if has_update else None
    for which in ("rms", "layer"):
        stream = random(dtype, *shape).clone()
        summed = stream + update if update is not None else stream.clone()
        if which == "rms":
            result = operators.rms_norm(weight, 1e-5)(stream, update)
            wanted = F.rms_norm(summed.double(), shape[1:], weight.double(), 1e-5)
        else:
            result = operators.layer_norm(weight, bias, 1e-5)(stream, update)
            wanted = F.layer_norm(summed.double(), shape[1:], weight.double(), bias.double(), 1e-5)
        assert torch.equal(stream, summed)
        assert_near(result, wanted)


@pytest.mark.parametrize("shape", [(1, 48), (3, 7), (70, 600)])
def test_activations(operators: Operators, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    rows, size = shape
    both = random(dtype, rows, 2 * size) * 4
    gate, up = both.double().chunk(2, dim=-1)
    assert_near(operators.silu_mul(both), F.silu(gate) * up)
    assert_near(operators.gelu_tanh_mul(both), F.gelu(gate, approximate="tanh") * up)
    assert_near(operators.gelu_tanh(both), F.gelu(both.double(), approximate="tanh"))
    assert_near(operators.gelu(both), F.gelu(both.double()))
    assert torch.equal(operators.relu(both), F.relu(both))


def test_activations_at_the_ends_of_the_range(operators: Operators, dtype: torch.dtype) -> None:
    x = torch.tensor([[-3e38, -200.0, -88.0, 0.0, 88.0, 200.0]], dtype=dtype)
    gates = torch.cat((x, torch.ones_like(x)), dim=1)
    for result in (operators.silu_mul(gates), operators.gelu_tanh_mul(gates)):
        wanted = torch.tensor([[0.0, 0.0, 0.0, 0.0, 88.0, 200.0]], dtype=dtype)
        torch.testing.assert_close(result, wanted, atol=1e-30, rtol=0)


def test_argmax_takes_the_first_of_equal_ones(operators: Operators, dtype: torch.dtype) -> None:
    logits = torch.zeros(4, 101, dtype=dtype)
    logits[1, 100] = 1
    logits[2, [40, 60, 99]] = 2
    logits[3] = float("-inf")
    logits[3, 17] = -5
    assert operators.argmax(logits).tolist() == [0, 100, 40, 17]


@pytest.mark.parametrize("instruction_set", USABLE)
def test_a_row_is_the_same_to_the_last_bit_beside_any_others(instruction_set: str, dtype: torch.dtype) -> None:
    operators = CppOperators(library(instruction_set), dtype)
    multiply = operators.linear(random(dtype, 100, 64), random(dtype, 100))
    norm = operators.rms_norm(random(dtype, 64), 1e-6)
    x = random(dtype, 90, 64)
    together = multiply(norm(x, None))
    for first, count in ((0, 1), (1, 2), (3, 8), (11, 70), (81, 3), (84, 5), (89, 1)):
        part = x[first : first + count].contiguous()
        assert torch.equal(multiply(norm(part, None)), together[first : first + count])


def test_without_a_compiler_the_torch_operators_serve(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("AGON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(OperatorsUnavailable, match="no C\\+\\+ compiler"):
        build("portable")
    chosen = choose_operators(torch.device("cpu"), torch.float32, 1, allow_compiled=True)
    assert chosen.name == "torch"
    assert "slower torch operators" in caplog.text


def test_int8_weights_without_the_cpp_operators_are_refused() -> None:
    with pytest.raises(OperatorsUnavailable, match="int8 weights need"):
        choose_operators(torch.device("cpu"), torch.float32, 1, allow_compiled=False, has_int8_weights=True)


def test_a_broken_compiler_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGON_CACHE_DIR", str(tmp_path))
    with pytest.raises(OperatorsUnavailable, match="could not build"):
        build("portable", extra_flags=("-std=no-such-standard",))


def test_the_library_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    path = build(USABLE[0])
    before = path.stat().st_mtime_ns
    assert build(USABLE[0]) == path
    assert path.stat().st_mtime_ns == before
    assert build_module.cache_folder() in path.parents


@pytest.mark.parametrize("num_inputs", [64, 90, 7])
def test_every_row_gets_the_update_of_its_own_adapter(
    operators: Operators, dtype: torch.dtype, num_inputs: int
) -> None:
    rows = AdapterRows.of((1, 3, 37, 1, 2, 5), (1, 0, 2, 3, 4, 5))
    assert rows is not None
    product = operators.adapter_product(AdapterShape(5, 40, num_inputs, OUTPUTS, dtype, torch.device("cpu")))
    x = random(dtype, rows.num_rows, num_inputs + 6)[:, :num_inputs]
    y = random(dtype, rows.num_rows, sum(OUTPUTS))
    wanted = y.double()
    for slot, parts in adapters(num_inputs).items():
        product.place(slot, parts)
        for first, count, its_slot in rows.runs.tolist():
            for part in parts if its_slot == slot else ():
                own = wanted[first : first + count, part.first_output : part.first_output + len(part.up)]
                if part.gains is not None:
                    own *= part.gains
                if part.shifts is not None:
                    own += part.shifts
                own += x[first : first + count].double() @ part.down.double().T @ part.up.double().T
    product.add(x, y, rows)
    if dtype == torch.bfloat16:  # the product with `down` is rounded, too
        torch.testing.assert_close(y.double(), wanted, atol=0.05, rtol=0.02)
    else:
        assert_near(y, wanted)


def test_bits_of_an_adapted_row_do_not_depend_on_its_neighbours(operators: Operators, dtype: torch.dtype) -> None:
    product = operators.adapter_product(AdapterShape(5, 40, 90, OUTPUTS, dtype, torch.device("cpu")))
    for slot, parts in adapters(90).items():
        product.place(slot, parts)
    rows = AdapterRows.of((19, 1, 7), (2, 1, 2))
    assert rows is not None
    x, y = random(dtype, 27, 90), random(dtype, 27, sum(OUTPUTS))
    together = y.clone()
    product.add(x, together, rows)
    for row, slot in ((0, 2), (17, 2), (19, 1), (26, 2)):
        alone = y[row : row + 1].clone()
        single = AdapterRows.of((1,), (slot,))
        assert single is not None
        product.add(x[row : row + 1], alone, single)
        assert torch.equal(alone[0], together[row])
