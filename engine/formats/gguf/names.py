"""Which tensors of a GGUF file make each tensor that a model takes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from engine.errors import CheckpointError
from engine.formats.gguf.architectures import named_in
from engine.formats.gguf.changes import NOTHING, Change, Config
from engine.formats.gguf.families.shared import Architecture
from engine.formats.gguf.file import GgufFile

_IN_LAYER = re.compile(r"blk\.(\d{1,6})\.([\w.]+)")
_ENDING = re.compile(r"\.(weight|bias)$")
_EXPERT = "{e}"
_MOST_EXPERTS = 65_536
#: What config.json holds already, and factors of layers that are not served.
_NOT_TAKEN = re.compile(r"rope_(freqs|factors_long|factors_short)\.weight|blk\.\d+\.(rope_freqs|attn_rot_embd)\.weight")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a model's tensor is in the file."""

    tensors: tuple[str, ...]  #: of the file, joined
    change: Change
    expert: int | None  #: the index in their first dimension; None: all of it


def places_of(file: GgufFile, architecture: Architecture, config: Config) -> Mapping[str, Place]:
    """By the model's names. Tensors of layers behind the last one, which predict several tokens, are left out; names
    that the architecture does not have stay."""
    found: dict[str, Place] = {}
    order = list(architecture.names)
    extra = range(config["num_hidden_layers"], file.settings.get(f"{named_in(file)[0]}.block_count", 0))
    wanted: dict[str, list[tuple[int, str]]] = {}
    changes: dict[str, Change] = {}
    for name in file.tensors:
        match = _IN_LAYER.fullmatch(name)
        if _NOT_TAKEN.fullmatch(name) or (match is not None and int(match[1]) in extra):
            continue
        part = match[2] if match is not None else name
        named = _renamed(part, architecture, is_in_layer=match is not None)
        if named is None:
            wanted[name] = [(0, name)]
            continue
        key, theirs = named
        model_name = f"{architecture.layers}.{match[1]}.{theirs}" if match is not None else theirs
        wanted.setdefault(model_name, []).append((order.index(key), name))
        plain = architecture.changes.get(_ENDING.sub("", theirs), NOTHING)
        changes[model_name] = architecture.changes.get(theirs, plain)
    for model_name, parts in wanted.items():
        tensors, change = tuple(name for _, name in sorted(parts)), changes.get(model_name, NOTHING)
        if _EXPERT not in model_name:
            found[model_name] = Place(tensors, change, None)
            continue
        counts = {file.tensors[name].shape[0] for name in tensors}
        if len(counts) != 1 or max(counts) > _MOST_EXPERTS:
            raise CheckpointError(f"{file.path.name}: {', '.join(tensors)} are not of the same experts")
        for index in range(counts.pop()):
            found[model_name.replace(_EXPERT, str(index))] = Place(tensors, change, index)
    return found


def _renamed(part: str, architecture: Architecture, *, is_in_layer: bool) -> tuple[str, str] | None:
    """A tensor's key in the architecture's names, and its name in a layer or in the model; None: it has none."""
    prefix = "" if is_in_layer else "/"
    if prefix + part in architecture.names:
        return prefix + part, architecture.names[prefix + part]
    stem, _, ending = part.rpartition(".")
    key = prefix + stem
    return (key, f"{architecture.names[key]}.{ending}") if key in architecture.names else None
