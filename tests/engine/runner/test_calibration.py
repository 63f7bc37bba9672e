"""The look at the inputs of layers before weights are rounded to int4."""

import logging

import pytest
import torch

from engine.config import EngineConfig
from engine.kernels.choice import choose_operators
from engine.kernels.cpu.operators import CppOperators
from engine.kernels.operators import LinearFunction, Operators
from engine.kernels.quantised import Matrix
from engine.kernels.torch_operators import TorchOperators
from engine.loader import Checkpoint, CheckpointWeights, read_config
from engine.models.causal_lm import CausalLM
from engine.models.config_reader import ConfigReader
from engine.models.registry import architecture_of
from engine.runner.calibration import importance_of
from engine.runner.load import load_runner
from engine.text.tokenizer import Tokenizer
from tests.engine.checkpoints import TinyModels

CPU = torch.device("cpu")


class Counting(TorchOperators):
    """Plain products, whose number and inputs are noted."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def linear(self, weight: Matrix, bias: torch.Tensor | None) -> LinearFunction:
        self.sizes.append(weight.shape[1])
        return super().linear(weight, bias)

    def head(self, weight: Matrix, bias: torch.Tensor | None) -> LinearFunction:
        return super().linear(weight, bias)

    def tied_embedding(self, table: Matrix) -> tuple[LinearFunction, LinearFunction]:
        return self.embedding(table), super().linear(table, None)


@pytest.mark.parametrize("name", ["llama", "qwen3.5", "mixtral", "gemma3"])
def test_every_matrix_has_the_importance_of_its_inputs(tiny_model: TinyModels, name: str) -> None:
    """In the order in which they are bound; also of experts, some of which may have had no tokens."""
    folder = tiny_model(name).folder

    def build(operators: Operators) -> CausalLM:
        settings = ConfigReader(read_config(folder))
        weights = CheckpointWeights(Checkpoint(folder), dtype=torch.float32, device=CPU, operators=operators)
        return architecture_of(settings).build(settings, weights)

    operators, counting = choose_operators(CPU, torch.float32, 1, allow_compiled=True), Counting()
    assert isinstance(operators, CppOperators)
    found = importance_of(build, operators, EngineConfig(str(folder)), Tokenizer.of_bytes())
    build(counting)
    assert len(found) == len(counting.sizes)
    known = [(each, size) for each, size in zip(found, counting.sizes, strict=True) if each is not None]
    assert len(known) >= len(found) // 2
    for importance, size in known:
        assert importance.shape == (size,)
        assert float(importance.mean()) == pytest.approx(1.0, rel=1e-3)
        assert float(importance.min()) >= 0.0


def test_the_log_says_why_there_was_no_look(tiny_model: TinyModels, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    config = EngineConfig(str(tiny_model("llama").folder), weights="int4", kv_cache_bytes=1 << 22)
    loaded = load_runner(config)
    assert "tokens to see where weights have to be exact" in caplog.text
    assert loaded.info.weights.startswith("int4 (")
    loaded.runner.close()
