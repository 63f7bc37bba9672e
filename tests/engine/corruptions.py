"""Damaged and hostile model folders, made from a small real checkpoint; the same ones for the same seed.

A corruption says what may happen: REFUSED (one clear line), SAME (refused, or the model as it was), ANY (a legal model,
perhaps another one: it may also load and compute something else). Flipped bits inside weights are not among them: a
checkpoint without checksums cannot tell one finite number from another.
"""

import json
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

WEIGHTS, CONFIG, INDEX = "model.safetensors", "config.json", "model.safetensors.index.json"


class Outcome(Enum):
    """What loading the folder may come to."""

    REFUSED = "refused"
    SAME = "refused, or the same model"
    ANY = "refused, or a model"


@dataclass(frozen=True)
class Corruption:
    """A change of a model folder. `base`: the variant of tests/engine/checkpoints.py that it starts from."""

    name: str
    base: str
    apply: Callable[[Path], None]
    outcome: Outcome


#: Written into every number of config.json.
_BAD_NUMBERS = ("0", "-1", "1000000000", "NaN", "1e999", '"7"', "[]", "{}", "true", "0.5", "1e400000")
#: Numbers of config.json that a model is built from, by variant; the others are read by transformers alone.
_NUMBERS = {
    "gpt2": ("n_embd", "n_head", "n_layer", "n_positions", "vocab_size", "n_inner", "layer_norm_epsilon"),
    "llama": (
        "head_dim",
        "hidden_size",
        "intermediate_size",
        "max_position_embeddings",
        "num_attention_heads",
        "num_hidden_layers",
        "num_key_value_heads",
        "rms_norm_eps",
        "vocab_size",
    ),
}
#: Values that are legal for a key, and change what the model computes or how long its context is.
_LEGAL = {
    ("rms_norm_eps", "0"),
    ("rms_norm_eps", "0.5"),
    ("layer_norm_epsilon", "0"),
    ("layer_norm_epsilon", "0.5"),
}
_ROPES = (
    '{"rope_type": "linear", "factor": 0}',
    '{"rope_type": "linear", "factor": -1.0}',
    '{"rope_type": "linear", "factor": "many"}',
    '{"rope_type": ["linear"]}',
    '{"rope_type": "' + "x" * 5000 + '"}',
    '{"rope_theta": 0}',
    '{"rope_theta": 1e999}',
    '{"rope_theta": -10000}',
    '{"partial_rotary_factor": 2}',
    "[]",
    "7",
    '{"rope_type": "llama3", "factor": 8, "low_freq_factor": 2, "high_freq_factor": 1,'
    ' "original_max_position_embeddings": 32}',
    '{"rope_type": "yarn", "factor": 8, "beta_fast": 0, "original_max_position_embeddings": 32}',
    '{"rope_type": "yarn", "factor": 8, "rope_theta": 1, "original_max_position_embeddings": 32}',
    '{"rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 0}',
    '{"rope_type": "longrope", "short_factor": [1e999], "long_factor": [0], "original_max_position_embeddings": 32}',
    '{"rope_type": "longrope", "short_factor": [1], "long_factor": [1], "original_max_position_embeddings": 32}',
)
_EOS = ('"</s>"', "-1", "[1, -1]", "[[1]]", "[null]", "{}", "true", "1.5", "1e999", "NaN", "99999999999", "[[]]")
_SAMPLING = ('{"eos_token_id": ', "}")
_TOKENIZERS = (
    "",
    "{",
    "[]",
    "null",
    "{}",
    '{"model": null}',
    '{"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}',
    '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}',
    '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "decoder": {"type": "Nothing"}}',
    '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "decoder": null}',
    '{"model": {"type": "WordPiece", "vocab": {}, "unk_token": "u", "continuing_subword_prefix": "#",'
    ' "max_input_chars_per_word": 1}}',
    "[" * 100_000,
    '{"model": {"type": "BPE", "vocab": {"a": 99999999999999999999}, "merges": []}}',
    '{"added_tokens": [{"id": 5}], "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}',
    '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "pre_tokenizer": {"type": "Split",'
    ' "pattern": {"Regex": "((("}, "behavior": "Removed", "invert": false}}',
)
_TOKENIZER_CONFIGS = (
    "[]",
    "{",
    '{"bos_token": 5}',
    '{"eos_token": {"text": "x"}}',
    '{"unk_token": ["u"]}',
    '{"chat_template": 5}',
    '{"chat_template": {"a": 1}}',
    '{"chat_template": [{"name": "default"}, 7, {"name": "default", "template": 5}]}',
    '{"chat_template": [{"name": "default", "template": 5}]}',
    '{"chat_template": "{% if %}"}',
    '{"chat_template": "{{ \'a\'.ljust(2000000000) }}"}',
    '{"chat_template": "{{ \'a\' * 2000000000 }}"}',
    '{"chat_template": "' + "{% for a in messages %}" * 40 + "{% endfor %}" * 40 + '"}',
    '{"chat_template": "' + "x" * 200_000 + '"}',
    '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}",
)


def corruptions(seed: int = 11) -> list[Corruption]:
    """All of them, in a fixed order."""
    found = [*_weights(seed), *_configs(), *_others()]
    assert len({corruption.name for corruption in found}) == len(found)
    return found


def _weights(seed: int) -> Iterator[Corruption]:
    generator = random.Random(seed)
    for _ in range(20):
        share = generator.random()
        yield Corruption(f"weights cut at {share:.3f}", "llama", _cut(share), Outcome.REFUSED)
    for size in (0, 1, 7, 8, 9, 64):
        yield Corruption(f"weights cut to {size} bytes", "llama", _cut_to(size), Outcome.REFUSED)
    for number in range(60):
        place, bit = generator.random(), generator.randrange(8)
        yield Corruption(f"header bit {number}: {place:.4f}.{bit}", "gpt2", _flip(place, bit), Outcome.SAME)
    for num_bytes in (0, 1, 2, 100, 10**6, 2**31, 2**40, 2**60, 2**63, 2**64 - 1):
        yield Corruption(f"header length {num_bytes}", "llama", _header_length(num_bytes), Outcome.REFUSED)
    for name, change in _HEADER_LIES.items():
        yield Corruption(f"header: {name}", "llama", _change_header(change), Outcome.REFUSED)
    for name, header in _HEADERS.items():
        yield Corruption(f"header is {name}", "llama", _write_header(header), Outcome.REFUSED)
    for value in (float("nan"), float("inf"), float("-inf"), 1e39):
        for tensor in ("model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight", "model.norm.weight"):
            yield Corruption(f"{value} in {tensor}", "llama", _put(tensor, value), Outcome.REFUSED)
    for name, change_tensors in _TENSOR_CHANGES.items():
        yield Corruption(f"tensors: {name}", "llama", _change_tensors(change_tensors), Outcome.REFUSED)
    yield Corruption("bytes after the weights", "llama", _append(b"\0" * 64), Outcome.REFUSED)
    yield Corruption("pickled weights", "llama", _rename(WEIGHTS, "pytorch_model.bin"), Outcome.REFUSED)
    yield Corruption("weights are a folder", "llama", _as_folder(WEIGHTS), Outcome.REFUSED)
    yield Corruption("no weights", "llama", _remove(WEIGHTS), Outcome.REFUSED)


def _configs() -> Iterator[Corruption]:
    for base, keys in _NUMBERS.items():
        for key in keys:
            for value in _BAD_NUMBERS:
                outcome = Outcome.ANY if (key, value) in _LEGAL else Outcome.REFUSED
                yield Corruption(f"{base}: {key} = {value}", base, _set(CONFIG, key, value), outcome)
            yield Corruption(f"{base}: {key} = null", base, _set(CONFIG, key, "null"), Outcome.ANY)
    for number, rope in enumerate(_ROPES):
        yield Corruption(f"rope {number}", "llama", _set(CONFIG, "rope_parameters", rope), Outcome.REFUSED)
    for value in ("null", "[]", '"GPT2LMHeadModel"', "[7]", '[["GPT2LMHeadModel"]]', '["Nothing"]', "{}"):
        name = f"architectures = {value}"
        yield Corruption(name, "gpt2", _set(CONFIG, "architectures", value), Outcome.REFUSED)
    for key, value in (("activation_function", '"nothing"'), ("activation_function", "7"), ("dtype", "7")):
        outcome = Outcome.SAME if key == "dtype" else Outcome.REFUSED
        yield Corruption(f"{key} = {value}", "gpt2", _set(CONFIG, key, value), outcome)
    for value in ('"yes"', "1", "[]"):
        yield Corruption(f"tied = {value}", "gpt2", _set(CONFIG, "tie_word_embeddings", value), Outcome.REFUSED)
    for value in _EOS:
        yield Corruption(f"config: eos = {value[:20]}", "gpt2", _set(CONFIG, "eos_token_id", value), Outcome.REFUSED)
    for name, content in _BAD_OBJECTS.items():
        yield Corruption(f"config.json is {name}", "gpt2", _write(CONFIG, content), Outcome.REFUSED)
    yield Corruption("no config.json", "gpt2", _remove(CONFIG), Outcome.REFUSED)
    yield Corruption("config.json is a folder", "gpt2", _as_folder(CONFIG), Outcome.REFUSED)


def _others() -> Iterator[Corruption]:
    for value in _EOS:
        content = f'{{"eos_token_id": {value}}}'.encode()
        name = f"generation_config: eos = {value[:20]}"
        yield Corruption(name, "gpt2", _write("generation_config.json", content), Outcome.REFUSED)
    for name, content in _BAD_OBJECTS.items():
        if name not in ("an empty object", "NaN"):
            yield Corruption(f"generation_config.json is {name}", "gpt2", _write("generation_config.json", content), _R)
            yield Corruption(f"tokenizer_config.json is {name}", "gpt2", _write("tokenizer_config.json", content), _R)
            yield Corruption(f"the index is {name}", "gpt2", _write(INDEX, content), Outcome.REFUSED)
    for number, text in enumerate(_TOKENIZERS):
        yield Corruption(f"tokenizer.json {number}", "gpt2", _write("tokenizer.json", text.encode()), _R)
    for number, text in enumerate(_TOKENIZER_CONFIGS):
        content = text.encode()
        yield Corruption(f"tokenizer_config.json {number}", "gpt2", _write("tokenizer_config.json", content), _R)
    yield Corruption("no tokenizer.json", "gpt2", _remove("tokenizer.json"), Outcome.REFUSED)
    for number, template in enumerate((b"\xff\xfe\0", b"{% endfor %}", b"{{ 2 ** 100000 }}", b"{% extends 'x'")):
        yield Corruption(f"template {number}", "gpt2", _write("chat_template.jinja", template), Outcome.REFUSED)
    for number, weight_map in enumerate(_WEIGHT_MAPS):
        content = f'{{"weight_map": {weight_map}}}'.encode()
        yield Corruption(f"weight map {number}", "gpt2", _write(INDEX, content), Outcome.REFUSED)


_R = Outcome.REFUSED
_BAD_OBJECTS = {
    "empty": b"",
    "cut": b'{"architectures": ["GPT2L',
    "a list": b"[]",
    "a number": b"7",
    "null": b"null",
    "an empty object": b"{}",
    "no text": b"\xff\xfe\0\0",
    "nested deep": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "NaN": b'{"n_layer": NaN}',
    "huge": b'{"a": "' + b"x" * (17 * 2**20) + b'"}',
    "a long number": b'{"a": ' + b"9" * 100_000 + b"}",
}
_WEIGHT_MAPS = (
    "null",
    "[]",
    "{}",
    "7",
    '{"a": 7}',
    '{"a": null}',
    '{"a": "../model.safetensors"}',
    '{"a": "/etc/passwd"}',
    '{"a": "model.safetensors"}',
    '{"a": "nothing.safetensors"}',
    '{"a": ""}',
    '{"a": "."}',
    '{"a": ".."}',
    '{"a": "a\\u0000b"}',
    '{"a": ["model.safetensors"]}',
    '{"a": "config.json"}',
)
_HEADERS = {
    "empty": b"",
    "an empty object": b"{}",
    "a list": b"[]",
    "no JSON": b"x" * 100,
    "nested deep": b"[" * 10_000,
    "no text": b"\xff" * 64,
    "of one huge tensor": b'{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}',
    "of a negative shape": b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}',
    "of a shape that overflows": b'{"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4]}}',
    "with metadata only": b'{"__metadata__":{"format":"pt"}}',
    "with metadata that is no text": b'{"__metadata__":{"format":7}}',
}


def _entry(header: dict[str, Any], number: int = 3) -> dict[str, Any]:
    names = sorted(name for name in header if name != "__metadata__")
    entry: dict[str, Any] = header[names[number]]
    return entry


def _set_offsets(start: int, end: int) -> Callable[[dict[str, Any]], None]:
    return lambda header: _entry(header).update(data_offsets=[start, end])


def _shift_offsets(start: int, end: int) -> Callable[[dict[str, Any]], None]:
    def change(header: dict[str, Any]) -> None:
        offsets = _entry(header)["data_offsets"]
        _entry(header)["data_offsets"] = [offsets[0] + start, offsets[1] + end]

    return change


_HEADER_LIES: dict[str, Callable[[dict[str, Any]], None]] = {
    "other dtype of the same size": lambda header: _entry(header).update(dtype="I32"),
    "smaller dtype": lambda header: _entry(header).update(dtype="F16"),
    "larger dtype": lambda header: _entry(header).update(dtype="F64"),
    "unknown dtype": lambda header: _entry(header).update(dtype="F33"),
    "dtype is a number": lambda header: _entry(header).update(dtype=7),
    "no dtype": lambda header: _entry(header).pop("dtype"),
    "no shape": lambda header: _entry(header).pop("shape"),
    "no offsets": lambda header: _entry(header).pop("data_offsets"),
    "flat shape": lambda header: _entry(header).update(shape=[48 * 80]),
    "turned shape": lambda header: _entry(header, 4).update(shape=_entry(header, 4)["shape"][::-1]),
    "shape with a zero": lambda header: _entry(header).update(shape=[0, *_entry(header)["shape"]]),
    "shape with a fraction": lambda header: _entry(header).update(shape=[1.5]),
    "shape with ones": lambda header: _entry(header).update(shape=[1, *_entry(header)["shape"]]),
    "empty shape": lambda header: _entry(header).update(shape=[]),
    "offsets of nothing": _set_offsets(0, 0),
    "offsets turned": _set_offsets(400, 0),
    "offsets far away": _set_offsets(2**62, 2**62 + 4),
    "offsets overlap the next": _shift_offsets(0, 4),
    "offsets overlap the last": _shift_offsets(-4, 0),
    "offsets moved": _shift_offsets(4, 4),
    "same bytes twice": lambda header: _entry(header, 3).update(data_offsets=_entry(header, 4)["data_offsets"]),
    "tensor of another name": lambda header: header.update({"other": header.pop("model.norm.weight")}),
    "tensor missing": lambda header: header.pop("model.norm.weight"),
    "tensor doubled": lambda header: header.update({"other": header["model.norm.weight"]}),
    "tensor is a list": lambda header: header.update({"model.norm.weight": []}),
}


def _drop(name: str) -> Callable[[dict[str, torch.Tensor]], None]:
    return lambda tensors: tensors.__delitem__(name)


def _replace(name: str, tensor: torch.Tensor) -> Callable[[dict[str, torch.Tensor]], None]:
    return lambda tensors: tensors.__setitem__(name, tensor)


_TENSOR_CHANGES: dict[str, Callable[[dict[str, torch.Tensor]], None]] = {
    "no embedding": _drop("model.embed_tokens.weight"),
    "no head": _drop("lm_head.weight"),
    "no last layer": lambda tensors: [tensors.pop(name) for name in list(tensors) if ".layers.2." in name].clear(),
    "one layer more": _replace("model.layers.3.input_layernorm.weight", torch.ones(48)),
    "extra tensor": _replace("model.secret", torch.ones(1)),
    "all extra": lambda tensors: tensors.update({f"x{i}": torch.ones(1) for i in range(5000)}),
    "empty norm": _replace("model.norm.weight", torch.ones(0)),
    "scalar norm": _replace("model.norm.weight", torch.tensor(1.0)),
    "wide norm": _replace("model.norm.weight", torch.ones(49)),
    "integer norm": _replace("model.norm.weight", torch.ones(48, dtype=torch.int32)),
    "complex norm": _replace("model.norm.weight", torch.ones(48, dtype=torch.complex64)),
    "boolean norm": _replace("model.norm.weight", torch.ones(48, dtype=torch.bool)),
    "float8 norm": _replace("model.norm.weight", torch.ones(48).to(torch.float8_e4m3fn)),
    "NaN in float16": _replace("model.norm.weight", torch.full((48,), float("nan"), dtype=torch.float16)),
    "too large for float32": _replace("model.norm.weight", torch.full((48,), 1e300, dtype=torch.float64)),
    "nothing": lambda tensors: tensors.clear(),
}


def _cut(share: float) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        content = (folder / WEIGHTS).read_bytes()
        (folder / WEIGHTS).write_bytes(content[: int(share * len(content))])

    return apply


def _cut_to(size: int) -> Callable[[Path], None]:
    return lambda folder: _discard((folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:size]))


def _flip(place: float, bit: int) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        content = bytearray((folder / WEIGHTS).read_bytes())
        header_bytes = int.from_bytes(content[:8], "little")
        content[int(place * (8 + header_bytes))] ^= 1 << bit
        (folder / WEIGHTS).write_bytes(content)

    return apply


def _header_length(num_bytes: int) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        content = (folder / WEIGHTS).read_bytes()
        (folder / WEIGHTS).write_bytes(struct.pack("<Q", num_bytes) + content[8:])

    return apply


def _change_header(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        content = (folder / WEIGHTS).read_bytes()
        end = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:end])
        change(header)
        written = json.dumps(header).encode()
        (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(written)) + written + content[end:])

    return apply


def _write_header(header: bytes) -> Callable[[Path], None]:
    return _write(WEIGHTS, struct.pack("<Q", len(header)) + header)


def _change_tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        change(tensors)
        save_file(tensors, folder / WEIGHTS)

    return apply


def _put(tensor: str, value: float) -> Callable[[Path], None]:
    """One value of a tensor, in float64 so that every value can be written."""

    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors[tensor] = tensors[tensor].double()
        tensors[tensor].view(-1)[tensors[tensor].numel() // 2] = value

    return _change_tensors(change)


def _set(file: str, key: str, value: str) -> Callable[[Path], None]:
    """`value` is written as it is, so that it need not be JSON."""

    def apply(folder: Path) -> None:
        values = json.loads((folder / file).read_text())
        values[key] = "@@"
        (folder / file).write_text(json.dumps(values).replace('"@@"', value))

    return apply


def _write(file: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: _discard((folder / file).write_bytes(content))


def _append(content: bytes) -> Callable[[Path], None]:
    return lambda folder: _discard((folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes() + content))


def _rename(old: str, new: str) -> Callable[[Path], None]:
    return lambda folder: _discard((folder / old).rename(folder / new))


def _remove(file: str) -> Callable[[Path], None]:
    return lambda folder: (folder / file).unlink()


def _as_folder(file: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        (folder / file).unlink()
        (folder / file).mkdir()

    return apply


def _discard(_: object) -> None:
    """The result of a call that is made for its effect."""
