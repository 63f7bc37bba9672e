"""A model divided among ranks computes what it computes alone; here ranks are threads."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from engine.config import EngineConfig
from engine.errors import CheckpointError
from engine.kernels.torch_operators import TorchOperators
from engine.loader import Checkpoint, CheckpointWeights, read_config
from engine.models.config_reader import ConfigReader
from engine.models.registry import ARCHITECTURES, architecture_of
from engine.parallel.group import Group, Place, Solo
from engine.parallel.shard import Shard, Size
from engine.runner import load_runner
from engine.runner.build import Builder, build_device_runner, build_runner
from tests.engine.checkpoints import CONTEXT, VARIANTS, TinyModel, save
from tests.engine.parallel.threads import on_every_rank
from tests.engine.runner.device.device_runners import torch_machinery
from tests.engine.stepper import generate, random_prompt

TinyModels = Callable[[str], TinyModel]
#: Variants of every architecture that several processes can share.
DIVISIBLE = [name for name, (architecture, _) in VARIANTS.items() if ARCHITECTURES[architecture].is_divisible]
PROMPTS = [random_prompt(1, 37), random_prompt(2, 5), random_prompt(4, 1)]
#: Heads that six processes can share, too; layers and vocabulary as they are.
SIX = {"num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 96}


def config_of(folder: Path, **settings: object) -> EngineConfig:
    defaults: dict[str, object] = {"page_tokens": 4, "kv_cache_bytes": 1 << 20, "max_running": 4, "num_threads": 1}
    return EngineConfig(str(folder), **{**defaults, **settings})  # type: ignore[arg-type]


def tokens_of(config: EngineConfig, size: int, build: Builder = build_runner) -> list[list[list[int]]]:
    """What each rank draws; all of them draw."""

    def work(group: Group) -> list[list[int]]:
        return generate(load_runner(config, group, build).runner, PROMPTS, 10, chunk=16)

    return on_every_rank(size, work)


@pytest.mark.parametrize("operators", ["auto", "torch"])
@pytest.mark.parametrize("name", DIVISIBLE)
def test_two_ranks_draw_the_tokens_of_one(tiny_model: TinyModels, name: str, operators: str) -> None:
    tiny = tiny_model(name)
    expected = [tiny.greedy(prompt, 10) for prompt in PROMPTS]
    assert tokens_of(config_of(tiny.folder, operators=operators), 2) == [expected] * 2


def test_keys_and_values_of_8_bits_have_the_same_scales_on_two_ranks(tiny_model: TinyModels) -> None:
    config = config_of(tiny_model("qwen3").folder, kv_dtype="int8", dtype="float32")
    (alone,) = tokens_of(config, 1)
    assert tokens_of(config, 2) == [alone] * 2


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_so_they_do_under_the_runner_of_devices(tiny_model: TinyModels, name: str) -> None:
    """Without graphs: a group of threads cannot be recorded."""
    tiny = tiny_model(name)
    expected = [tiny.greedy(prompt, 10) for prompt in PROMPTS]
    build = partial(build_device_runner, machinery=torch_machinery())
    config = config_of(tiny.folder, operators="torch", enforce_eager=True)
    assert tokens_of(config, 2, build) == [expected] * 2


@pytest.mark.parametrize("name", ["llama", "olmo2"])
def test_more_ranks_than_key_value_heads_store_them_several_times(tmp_path: Path, name: str) -> None:
    tiny = save(name, tmp_path, **SIX)
    expected = [tiny.greedy(prompt, 10) for prompt in PROMPTS]
    assert tokens_of(config_of(tmp_path), 6) == [expected] * 6


@pytest.mark.parametrize("name", ["llama", "gemma3", "phi3"])
def test_ranks_hold_what_one_process_holds_and_little_twice(tiny_model: TinyModels, name: str) -> None:
    """Each of two ranks holds half of all matrices; norms of a few hundred numbers are on both."""
    folder = tiny_model(name).folder
    whole, *shares = [_numbers_held(folder, Place(rank, size)) for rank, size in ((0, 1), (0, 2), (1, 2))]
    assert whole == Checkpoint(folder).num_parameters
    for share in shares:
        assert whole / 2 <= share + CONTEXT  # the vocabulary is odd
        assert share <= whole / 2 + 16 * 48 * 2


def test_a_rank_reads_no_more_of_the_file_than_its_shard(tiny_model: TinyModels) -> None:
    checkpoint = Checkpoint(tiny_model("phi3").folder)
    rows = Shard.stacked([Shard.even(size, Place(1, 2), "size") for size in (96, 32, 32)])
    name = "model.layers.0.self_attn.qkv_proj.weight"
    whole = checkpoint.read(name, (160, 48))
    expected = torch.cat([whole[48:96], whole[112:128], whole[144:160]])
    assert torch.equal(checkpoint.read(name, (rows, 48)), expected)
    columns = Shard(48, ((8, 16),))
    assert torch.equal(checkpoint.read(name, (160, columns)), whole[:, 8:16])
    with pytest.raises(CheckpointError, match=r"has shape \[160, 48\], the config says \[160, 50\]"):
        checkpoint.read(name, (160, Shard(50, ((8, 16),))))


def test_pages_of_a_rank_hold_its_own_heads(tiny_model: TinyModels) -> None:
    config = config_of(tiny_model("gemma2").folder)
    (alone,) = on_every_rank(1, lambda group: load_runner(config, group).pool_plan)
    first, second = on_every_rank(2, lambda group: load_runner(config, group).pool_plan)
    assert first == second
    assert [2 * kind.small_page_bytes for kind in first.types] == [kind.small_page_bytes for kind in alone.types]


def test_a_pool_of_unstated_size_is_what_the_poorest_rank_can_spare(tiny_model: TinyModels) -> None:
    class WithPoorNeighbour(Solo):
        def minimum(self, number: int) -> int:
            return min(number, 1 << 17)

    config = config_of(tiny_model("llama").folder, kv_cache_bytes=None, max_running=64)
    assert load_runner(config).pool_plan.pool_bytes > 1 << 18
    assert 1 << 16 < load_runner(config, WithPoorNeighbour()).pool_plan.pool_bytes <= 1 << 17


def _numbers_held(folder: Path, place: Place) -> int:
    """How many numbers all tensors have that a model takes."""
    held = 0

    class Counting(CheckpointWeights):
        def take(self, name: str, *shape: Size, dtype: torch.dtype | None = None) -> torch.Tensor:
            nonlocal held
            tensor = super().take(name, *shape, dtype=dtype)
            held += tensor.numel()
            return tensor

    settings = ConfigReader(read_config(folder))
    weights = Counting(
        Checkpoint(folder),
        dtype=torch.float32,
        device=torch.device("cpu"),
        operators=TorchOperators(),
        group=Solo(place),
    )
    architecture_of(settings).build(settings, weights)
    return held
