"""A key that config.json leaves out has the default of the architecture's class in transformers, or the checkpoint is
refused: every key of every tiny checkpoint is left out in turn."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.errors import CheckpointError
from engine.kernels.torch_operators import TorchOperators
from engine.layers.weights import ShapesOnly
from engine.models.config_reader import ConfigReader
from engine.models.registry import ARCHITECTURES
from tests.engine.checkpoints import VARIANTS, TinyModel
from tests.engine.chunked_logits import chunked_logits
from tests.engine.models.description import describe

#: The first variant of each architecture; `make test-long` takes all.
FIRST = list({architecture: name for name, (architecture, _) in reversed(list(VARIANTS.items()))}.values())
#: Objects whose keys are left out as well.
_NESTED = ("text_config", "rope_parameters", "rope_scaling")
#: What is no setting of the model.
_NAMES = ("architectures", "model_type", "transformers_version")
PROMPT = [5, 17, 300, 12, 8, 41, 99, 7, 7, 20, 250, 31]


class Read(dict[str, Any]):
    """An object of config.json that notes which of its keys are read."""

    def __init__(self, values: dict[str, Any], keys: set[tuple[str, ...]], path: tuple[str, ...] = ()) -> None:
        inner = {key: Read(v, keys, (*path, key)) if isinstance(v, dict) else v for key, v in values.items()}
        super().__init__(inner)
        self._keys, self._path = keys, path

    def __contains__(self, key: object) -> bool:
        self._keys.add((*self._path, str(key)))
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        self._keys.add((*self._path, key))
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._keys.add((*self._path, key))
        return super().get(key, default)


def built(architecture: str, values: dict[str, Any]) -> str | None:
    """What the model computes; None: it is refused."""
    try:
        return describe(ARCHITECTURES[architecture].build(ConfigReader(values), ShapesOnly()))
    except CheckpointError:
        return None


def paths_in(values: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        if key not in _NAMES:
            yield (key,)
            if key in _NESTED and isinstance(value, dict):
                yield from ((key, *path) for path in paths_in(value))


def without(values: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    key, *rest = path
    if rest:
        return {**values, key: without(values[key], tuple(rest))}
    return {other: value for other, value in values.items() if other != key}


def read_by_transformers(architecture: str, values: dict[str, Any]) -> dict[str, Any] | None:
    """All settings as the class in transformers reads this config.json; None: it raises."""
    import transformers

    settings = {key: value for key, value in values.items() if key not in _NAMES}
    try:
        config = getattr(transformers, architecture).config_class(**settings)
    except Exception:  # of any class, from pydantic-like checks to arithmetic with None
        return None
    return {**json.loads(config.to_json_string(use_diff=False)), "architectures": [architecture]}


def cases(name: str) -> Iterator[tuple[str, tuple[str, ...], dict[str, Any], dict[str, Any], dict[str, Any] | None]]:
    """Architecture, what is left out, the whole config, the one without it, and that as transformers reads it."""
    architecture, settings = VARIANTS[name]
    whole = read_by_transformers(architecture, settings)
    assert whole is not None
    for path in paths_in(whole):
        partial = without(whole, path)
        yield architecture, path, whole, partial, read_by_transformers(architecture, partial)


def judge(name: str) -> Counter[str]:
    """Counts of cases by what became of them. Raises AssertionError where a model would compute something else."""
    counts: Counter[str] = Counter()
    base: str | None = None
    keys: set[tuple[str, ...]] = set()
    for architecture, path, whole, partial, meant in cases(name):
        if base is None:
            base = built(architecture, whole)
            assert base is not None
            built(architecture, Read(whole, keys))
        if meant is None:
            counts["transformers refuses"] += 1
        elif meant == whole and path not in keys:
            counts["equal"] += 1  # neither side has read it
        elif (ours := built(architecture, partial)) is None:
            counts["refused"] += 1
        else:
            assert ours == (base if meant == whole else built(architecture, meant)), (name, ".".join(path))
            counts["equal"] += 1
    return counts


@pytest.mark.parametrize("name", FIRST)
def test_keys_left_out_of_each_architecture(name: str) -> None:
    counts = judge(name)
    assert counts["equal"] > counts["refused"]


def test_every_architecture_is_among_them() -> None:
    assert {VARIANTS[name][0] for name in FIRST} == set(ARCHITECTURES)


def test_gemma_3_ignores_a_soft_cap_on_scores() -> None:
    architecture, settings = VARIANTS["gemma3"]
    whole = read_by_transformers(architecture, settings)
    assert whole is not None
    assert built(architecture, {**whole, "attn_logit_softcapping": 50.0}) == built(architecture, whole)


def test_no_mlp_beside_the_experts_is_a_size_that_is_read() -> None:
    assert ConfigReader({"shared_intermediate_size": 0}).require("shared_intermediate_size", int) == 0


@pytest.mark.long
def test_keys_left_out_of_each_tiny_checkpoint() -> None:
    counts = sum(map(judge, VARIANTS), Counter[str]())
    print(dict(counts))
    assert counts.total() > 3000


@pytest.mark.long
@pytest.mark.parametrize("name", FIRST)
def test_logits_without_a_key(name: str, tiny_model: Callable[[str], TinyModel], tmp_path: Path) -> None:
    """Where a key that is left out means another value: the logits of transformers, or a refusal by either."""
    source = tiny_model(name).folder
    for file in source.iterdir():
        if file.name != "config.json":
            (tmp_path / file.name).symlink_to(file)
    for _, path, whole, partial, meant in cases(name):
        if meant is None or meant == whole:
            continue
        (tmp_path / "config.json").write_text(json.dumps(partial))
        try:
            ours = chunked_logits(tmp_path, PROMPT, page_tokens=4, chunk=5, operators=TorchOperators())
            theirs = TinyModel(tmp_path).logits(PROMPT)
        except (CheckpointError, RuntimeError, ValueError, TypeError):
            continue
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=2e-4, msg=f"{name} without {'.'.join(path)}")
