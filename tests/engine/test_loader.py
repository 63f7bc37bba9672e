"""What a checkpoint must be, and the one clear line for each way in which it is not."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.config import EngineConfig
from engine.errors import CheckpointError
from engine.kernels.torch_operators import TorchOperators
from engine.layers.weights import ShapesOnly
from engine.loader import Checkpoint, CheckpointWeights, find_model_folder
from engine.runner import load_runner
from tests.engine.checkpoints import TinyModel, save
from tests.engine.stepper import generate, random_prompt

PROMPT = random_prompt(1, 20)


@pytest.fixture
def folder(tmp_path: Path, tiny_model: Callable[[str], TinyModel]) -> Path:
    """A checkpoint that the test may damage."""
    for file in tiny_model("llama").folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def load(folder: Path, **settings: object) -> list[int]:
    config = EngineConfig(str(folder), kv_cache_bytes=1 << 20, max_running=2, num_threads=1, **settings)  # type: ignore[arg-type]
    return generate(load_runner(config).runner, [PROMPT], 5, chunk=64)[0]


def change_config(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def change_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def shard(folder: Path) -> dict[str, str]:
    """Split the weights into two files with an index."""
    tensors = load_file(folder / "model.safetensors")
    weight_map = {name: f"model-{i % 2 + 1}-of-2.safetensors" for i, name in enumerate(sorted(tensors))}
    for file in set(weight_map.values()):
        save_file({name: tensors[name] for name in tensors if weight_map[name] == file}, folder / file)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return weight_map


def test_shards_give_the_model_of_the_single_file(folder: Path) -> None:
    expected = load(folder)
    shard(folder)
    assert load(folder) == expected


def test_a_missing_shard_is_named(folder: Path) -> None:
    shard(folder)
    (folder / "model-2-of-2.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"lacks model-2-of-2\.safetensors"):
        load(folder)


def test_a_tensor_that_only_the_index_knows_is_named(folder: Path) -> None:
    weight_map = shard(folder)
    weight_map["model.extra.weight"] = "model-1-of-2.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(CheckpointError, match=r"model\.extra\.weight"):
        load(folder)


def test_an_index_cannot_name_a_file_elsewhere(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../other.safetensors"}}')
    with pytest.raises(CheckpointError, match="outside its folder"):
        load(folder)


@pytest.mark.parametrize("size", [0, 4, 100, 20_000])
def test_a_truncated_file_is_refused(folder: Path, size: int) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged"):
        load(folder)


def test_pickled_weights_are_not_touched(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="never loaded"):
        load(folder)


def test_a_missing_tensor_is_named(folder: Path) -> None:
    change_tensors(folder, lambda tensors: tensors.__delitem__("model.layers.1.mlp.up_proj.weight"))
    with pytest.raises(CheckpointError, match=r"no tensor model\.layers\.1\.mlp\.up_proj\.weight"):
        load(folder)


def test_a_tensor_that_no_code_uses_is_named(folder: Path) -> None:
    change_tensors(folder, lambda tensors: tensors.update({"model.layers.0.gate.weight": torch.ones(2)}))
    with pytest.raises(CheckpointError, match=r"does not use: model\.layers\.0\.gate\.weight"):
        load(folder)


def test_known_leftovers_of_old_checkpoints_are_ignored(folder: Path) -> None:
    expected = load(folder)
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    change_tensors(folder, lambda tensors: tensors.update({name: torch.ones(4)}))
    assert load(folder) == expected


def test_a_wrong_shape_is_named_with_both_shapes(folder: Path) -> None:
    change_tensors(folder, lambda tensors: tensors.update({"model.norm.weight": torch.ones(7)}))
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight has shape \[7\], the config says \[48\]"):
        load(folder)


def test_a_wrong_dtype_is_named(folder: Path) -> None:
    change_tensors(folder, lambda tensors: tensors.update({"model.norm.weight": torch.ones(48, dtype=torch.int8)}))
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight has dtype I8"):
        load(folder)


def test_half_precision_weights_are_converted(folder: Path) -> None:
    def to_half(tensors: dict[str, torch.Tensor]) -> None:
        tensors.update({name: tensor.half() for name, tensor in tensors.items()})

    change_tensors(folder, to_half)
    weights = CheckpointWeights(
        Checkpoint(folder), dtype=torch.float32, device=torch.device("cpu"), operators=TorchOperators()
    )
    assert weights.take("model.norm.weight", 48).dtype == torch.float32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["FooForCausalLM"]}, "no code for architecture 'FooForCausalLM', .* no decoder-only"),
        ({"architectures": None}, "has no architectures"),
        ({"hidden_size": None}, "has no hidden_size"),
        ({"hidden_size": "48"}, "hidden_size must be int"),
        ({"hidden_act": "relu"}, "hidden_act 'relu' is not supported"),
        ({"num_key_value_heads": 4}, "do not fit"),
        ({"rope_parameters": {"rope_type": "ntk", "factor": 2.0}}, "rope_type 'ntk' is not supported"),
        ({"rope_parameters": {"rope_type": "linear"}}, "rope_parameters has no factor"),
    ],
)
def test_a_config_that_we_cannot_serve_is_refused(folder: Path, changes: dict[str, object], message: str) -> None:
    change_config(folder, **changes)
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_older_names_of_rope_settings_mean_the_same(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    modern = save("llama-3-rope", tmp_path_factory.mktemp("modern")).folder
    expected = load(modern)
    rope = json.loads((modern / "config.json").read_text())["rope_parameters"]
    base = rope.pop("rope_theta")
    change_config(modern, rope_parameters=None, rope_scaling=rope, rope_theta=base)
    assert load(modern) == expected


def test_a_window_that_the_context_cannot_outgrow_is_none(
    tmp_path: Path, tiny_model: Callable[[str], TinyModel]
) -> None:
    mistral = save("mistral", tmp_path, sliding_window=64).folder
    config = EngineConfig(str(mistral), num_threads=1, kv_cache_bytes=1 << 20)
    assert [kind.spec.kind for kind in load_runner(config).pool_plan.types] == ["window"]
    short = load_runner(replace(config, max_model_len=64))
    assert [kind.spec.kind for kind in short.pool_plan.types] == ["full"]
    assert load(mistral, max_model_len=64) == load(tiny_model("mistral").folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"use_sliding_window": True, "layer_types": ["sliding_attention"]},
        {"use_sliding_window": True, "layer_types": ["sliding_attention", "full_attention", "mamba"]},
        {"layer_types": ["sliding_attention"] * 3},
    ],
)
def test_layer_types_that_say_too_little_are_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    folder = save("qwen2", tmp_path).folder
    change_config(folder, **changes)
    with pytest.raises(CheckpointError, match=r"layer_types must name 3 layers|need a sliding_window"):
        load(folder)


def test_a_bare_gpt2_checkpoint_without_prefix_is_served(
    tmp_path: Path, tiny_model: Callable[[str], TinyModel]
) -> None:
    source = tiny_model("gpt2").folder
    expected = load(source)
    for file in source.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = load_file(source / "model.safetensors")
    bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    save_file({**bare, "h.0.attn.bias": torch.ones(1, 1, 4, 4)}, tmp_path / "model.safetensors")
    assert load(tmp_path) == expected


@pytest.mark.parametrize("stored", ["equal", "different", "in place of the embedding"])
def test_a_stored_head_beside_a_tied_embedding_is_read_as_transformers_reads_it(folder: Path, stored: str) -> None:
    change_config(folder, tie_word_embeddings=True)
    embedding = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    if stored == "equal":
        change_tensors(folder, lambda tensors: tensors.update({"lm_head.weight": embedding.clone()}))
    elif stored == "in place of the embedding":
        change_tensors(folder, lambda tensors: tensors.__delitem__("model.embed_tokens.weight"))
    expected = TinyModel(folder)
    head = expected.reference.lm_head.weight
    assert torch.equal(head, expected.reference.model.embed_tokens.weight) == (stored != "different")
    assert load(folder) == expected.greedy(PROMPT, 5)


def test_a_folder_that_is_not_there_is_not_looked_up_on_the_hub() -> None:
    with pytest.raises(CheckpointError, match="there is no folder"):
        find_model_folder("./nowhere")


def test_a_hub_id_without_network_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match=r"nobody/nothing is neither a folder nor"):
        find_model_folder("nobody/nothing")


def test_the_revision_changes_with_the_weights(folder: Path) -> None:
    before = Checkpoint(folder).revision
    assert Checkpoint(folder).revision == before
    change_tensors(folder, lambda tensors: tensors.update({"model.norm.weight": torch.ones(48)}))
    assert Checkpoint(folder).revision != before


def test_dummy_weights_need_only_a_config_and_repeat_with_their_seed(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "tokenizer.json").unlink()
    first, again, other = (load(folder, load_format="dummy", seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_counting_parameters_allocates_none() -> None:
    counter = ShapesOnly()
    assert counter.take_matrix("x.weight", 10**6, 10**6).is_meta
    assert counter.num_parameters == 10**12
