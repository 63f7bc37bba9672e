"""The pooling of requests that name none: what an embedding checkpoint says, for the library."""

import json
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.utils._paths import filter_repo_objects
from safetensors.torch import load_file, save_file

from engine.errors import CheckpointError
from engine.loader import find_model_folder, read_pooling
from engine.sampling_params import PoolingParams
from tests.engine.small_engines import PROMPTS, TinyModels, load

NAMES = ("cls_token", "mean_tokens", "max_tokens", "lasttoken")


def write(folder: Path, pooling: object, *modules: str | dict[str, Any]) -> Path:
    """Write the files of sentence-transformers; without modules, no modules.json."""
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    paths = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    listed = [
        {"type": f"sentence_transformers.models.{module}", "path": paths.get(module, "3")}
        if isinstance(module, str)
        else module
        for module in modules
    ]
    if listed:
        (folder / "modules.json").write_text(json.dumps(listed))
    return folder


def pooling_of(*set_names: str) -> dict[str, Any]:
    return {"word_embedding_dimension": 48, **{f"pooling_mode_{name}": name in set_names for name in NAMES}}


@pytest.mark.parametrize(
    ("name", "modules", "expected"),
    [
        ("cls_token", ("Transformer", "Pooling", "Normalize"), PoolingParams("cls")),
        ("lasttoken", ("Transformer", "Pooling", "Normalize"), PoolingParams("last")),
        ("mean_tokens", ("Transformer", "Pooling"), PoolingParams("mean", normalize=False)),
        ("mean_tokens", (), PoolingParams("mean")),
        ("mean_tokens", ("Transformer",), PoolingParams("last", normalize=False)),
    ],
)
def test_the_modules_decide(tmp_path: Path, name: str, modules: tuple[str, ...], expected: PoolingParams) -> None:
    assert read_pooling(write(tmp_path, pooling_of(name), *modules)) == expected


def test_without_modules_it_is_the_last_token(tmp_path: Path) -> None:
    assert read_pooling(tmp_path) == PoolingParams("last")


@pytest.mark.parametrize(
    ("pooling", "modules", "sentence"),
    [
        (pooling_of("max_tokens"), (), "1_Pooling/config.json: pooling_mode_max_tokens is not supported"),
        (pooling_of("cls_token", "mean_tokens"), (), "must set one pooling_mode_"),
        (pooling_of(), (), "must set one pooling_mode_"),
        ([], (), "must hold a JSON object"),
        (pooling_of("cls_token"), ("Transformer", "Pooling", "Dense"), "a module 'Dense' is not supported"),
        (pooling_of("cls_token"), ({"type": "m.Pooling", "path": "../1_Pooling"},), "is no folder beside it"),
        (pooling_of("cls_token"), ({"type": "m.Pooling", "path": "4_Pooling"},), "4_Pooling"),
        (pooling_of("cls_token"), ({"path": "1_Pooling"},), "needs a type and a path"),
    ],
)
def test_what_cannot_be_served_is_refused(
    tmp_path: Path, pooling: object, modules: tuple[Any, ...], sentence: str
) -> None:
    with pytest.raises(CheckpointError, match=sentence):
        read_pooling(write(tmp_path, pooling, *modules))


def test_a_decoder_without_head_is_embedded_as_it_says(tiny_model: TinyModels, tmp_path: Path) -> None:
    source, folder = tiny_model("llama-tied").folder, tmp_path / "model"
    shutil.copytree(source, folder)
    tensors = load_file(source / "model.safetensors")
    save_file({name.removeprefix("model."): each for name, each in tensors.items()}, folder / "model.safetensors")
    write(folder, pooling_of("mean_tokens"), "Transformer", "Pooling")
    said = [result.outputs.embedding for result in load(folder).embed(PROMPTS)]
    params = PoolingParams("mean", normalize=False)
    assert said == [result.outputs.embedding for result in load(source).embed(PROMPTS, pooling_params=params)]


def test_the_pooling_module_is_downloaded_and_no_other_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = ("model.safetensors", "modules.json", "1_Pooling/config.json")
    others = ("onnx/config.json", "1/model.safetensors", "1_Dense/config.json", "original/1_Pooling/config.json")

    def download(_: str, *, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        kept = filter_repo_objects([*names, *others], allow_patterns=allow_patterns, ignore_patterns=ignore_patterns)
        assert set(kept) == set(names)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert find_model_folder("owner/model") == tmp_path
