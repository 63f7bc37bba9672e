"""A GGUF file computes what its dequantised weights compute, with the config and the tokenizer that it holds."""

import json
import random
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from engine.config import EngineConfig
from engine.errors import CheckpointError
from engine.formats.gguf.file import GgufFile
from engine.kernels.choice import choose_operators
from engine.kernels.torch_operators import TorchOperators
from engine.layers.rotary import inverse_frequencies
from engine.loader import find_model_folder, open_checkpoint, read_config
from engine.models.config_reader import ConfigReader
from engine.models.rope import read_rope
from engine.parallel.group import Group
from engine.runner import load_runner
from engine.runner.load import LoadedModel
from engine.text.tokenizer import Tokenizer
from tests.engine.chunked_logits import chunked_logits
from tests.engine.formats import gguf_writer as writer
from tests.engine.formats.gguf_files import settings_of, write
from tests.engine.parallel.threads import on_every_rank
from tests.engine.stepper import generate, random_prompt

PROMPT = random_prompt(9, 30)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of GGUF files are made below the test's own folder; compiled operators stay where they are."""
    monkeypatch.setattr("engine.formats.gguf.folder.cache_folder", lambda: tmp_path / "cache" / "operators")


def load(model: Path, group: Group | None = None, **settings: object) -> LoadedModel:
    defaults: dict[str, object] = {"kv_cache_bytes": 1 << 20, "max_running": 2, "num_threads": 1, "dtype": "float32"}
    return load_runner(EngineConfig(str(model), **{**defaults, **settings}), group)  # type: ignore[arg-type]


def tokens_of(loaded: LoadedModel) -> list[int]:
    return generate(loaded.runner, [PROMPT], 10, chunk=16)[0]


@pytest.mark.parametrize(
    ("variant", "architecture"),
    [("llama-tied", "llama"), ("qwen2", "qwen2"), ("qwen3", "qwen3")],
)
def test_it_gives_the_tokens_of_its_weights(tmp_path: Path, variant: str, architecture: str) -> None:
    file, plain = write(tmp_path, variant, architecture)
    wanted = tokens_of(load(plain, operators="torch"))
    loaded = load(file, operators="torch")
    assert tokens_of(loaded) == wanted
    assert loaded.info.precision == "float32, GGUF"
    assert len(tokens_of(load(file))) == 10
    assert loaded.limits.eos_token_ids == {300}
    assert loaded.tokenizer.encode("To be, or") == Tokenizer.from_folder(plain).encode("To be, or")
    assert loaded.tokenizer.render_chat([{"role": "user", "content": "be"}]) == loaded.tokenizer.encode("be")


def test_logits_of_the_cpp_operators_are_near(tmp_path: Path) -> None:
    file, plain = write(tmp_path, "qwen3", "qwen3")
    cpp = choose_operators(torch.device("cpu"), torch.float32, 1, allow_compiled=True)
    exact, ours = (
        chunked_logits(folder, PROMPT, page_tokens=16, chunk=12, operators=operators)
        for folder, operators in ((plain, TorchOperators()), (find_model_folder(str(file)), cpp))
    )
    assert float((ours - exact).square().mean().sqrt()) <= 0.1 * float(exact.square().mean().sqrt())


def test_two_processes_share_it(tmp_path: Path) -> None:
    file, _ = write(tmp_path, "llama", "llama")
    (alone,) = on_every_rank(1, lambda group: tokens_of(load(file, group, operators="torch")))
    assert on_every_rank(2, lambda group: tokens_of(load(file, group, operators="torch"))) == [alone] * 2


def test_scaled_positions_of_llama_3(tmp_path: Path) -> None:
    """The file has factors by which frequencies are divided."""
    divisors = np.linspace(1, 8, 32, dtype=np.float32)
    settings = {
        "general.architecture": "llama",
        **{f"llama.{name}": 2 for name in ("block_count", "context_length", "feed_forward_length")},
        "llama.attention.head_count": 4,
        "llama.embedding_length": 256,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 500000.0,
        **tokenizer_of([chr(i) for i in range(8)]),
    }
    matrix = np.zeros((8, 256), np.float32)
    tensors = {"token_embd.weight": (matrix, writer.f32), "rope_freqs.weight": (divisors, writer.f32)}
    writer.write(tmp_path / "a.gguf", settings, tensors)
    rope = read_rope(ConfigReader(read_config(find_model_folder(str(tmp_path / "a.gguf")))))
    plain = inverse_frequencies(64, 500000.0, None)
    torch.testing.assert_close(inverse_frequencies(64, rope.base, rope.scaling), plain / torch.from_numpy(divisors))


def tokenizer_of(tokens: list[str], **settings: object) -> dict[str, object]:
    defaults = {"model": "gpt2", "tokens": tokens, "token_type": [1] * len(tokens), "merges": []}
    return {f"tokenizer.ggml.{name}": value for name, value in {**defaults, **settings}.items()}


def tokenizer_in(folder: Path, settings: Mapping[str, object]) -> Tokenizer:
    config = {
        "vocab_size": 256,
        "rope_parameters": {"rope_theta": 1e4},
        **dict.fromkeys(("num_hidden_layers", "max_position_embeddings", "intermediate_size"), 2),
        "hidden_size": 32,
        "num_attention_heads": 2,
        "rms_norm_eps": 1e-5,
    }
    matrix = np.zeros((len(settings["tokenizer.ggml.tokens"]), 32), np.float32)  # type: ignore[arg-type]
    writer.write(
        folder / "t.gguf",
        {**settings_of(config, "llama"), **settings},
        {"token_embd.weight": (matrix, writer.f32)},
    )
    return Tokenizer.from_folder(find_model_folder(str(folder / "t.gguf")))


def test_sentence_pieces(tmp_path: Path) -> None:
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    words = ["\u2581", "a", "b", "c", "ab", "bc", "\u2581a", "\u2581ab", "abc"]
    scores = [0.0] * len(pieces) + [-9.0] * 4 + [-1.0, -0.5, -2.0, -3.0, -4.0]
    tokenizer = tokenizer_in(
        tmp_path,
        tokenizer_of(
            pieces + words,
            model="llama",
            scores=scores,
            token_type=[2, 3, 3] + [6] * 256 + [1] * len(words),
            unknown_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        ),
    )

    def ids(*texts: str) -> list[int]:
        return [(pieces + words).index(text) for text in texts]

    assert tokenizer.encode("abc") == ids("\u2581a", "bc")  # bc has the best score, then a blank and a
    assert tokenizer.encode("ab ab") == ids("\u2581ab", "\u2581ab")
    assert tokenizer.encode("\u00e9") == ids("\u2581", "<0xC3>", "<0xA9>")
    assert tokenizer.encode("a", add_special_tokens=True) == ids("<s>", "\u2581a")
    assert tokenizer.decode(tokenizer.encode("abc \u00e9 b")) == "abc \u00e9 b"


def test_runs_of_blanks_are_pieces_that_the_user_defined(tmp_path: Path) -> None:
    """Their scores are the lowest of all, and a typed U+2581 is one of them, too."""
    pieces = ["<unk>", "<s>", "\u2581", "  ", "   ", "\u2581a", "a", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [2, 3, 1, 4, 4, 1, 1] + [6] * 256
    scores = [0.0, 0.0, -9.0, -1000.0, -1000.0, -1.0, -8.0] + [0.0] * 256
    special = {"unknown_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}
    given = {"scores": scores, "token_type": kinds, **special}
    tokenizer = tokenizer_in(tmp_path, tokenizer_of(pieces, model="llama", add_space_prefix=False, **given))
    for text, ids in {"  a": [3, 6], "     a": [4, 3, 6], " a": [5], "\u2581\u2581": [3], "a   a": [6, 4, 6]}.items():
        assert tokenizer.encode(text) == ids, repr(text)
        assert tokenizer.decode(ids) == text.replace("\u2581", " ")


def test_a_file_in_parts_is_the_file(tmp_path: Path) -> None:
    """Its parts have links beside that of the first one; without one of them the file is refused."""
    file, _ = write(tmp_path, "llama", "llama", is_plain=True)
    whole = GgufFile(file)
    parts = gguf.GGUFWriter(tmp_path / "split.gguf", "llama", split_max_tensors=8)
    add = {int: parts.add_uint32, float: parts.add_float32, str: parts.add_string, list: parts.add_array}
    settings = {**whole.settings, "tokenizer.ggml.merges": ["a b"]}
    settings["tokenizer.ggml.tokens"] = [*whole.settings["tokenizer.ggml.tokens"][:-1], "ab"]
    for key, value in settings.items():
        if key != "general.architecture":
            add[type(value)](key, value)
    for name, tensor in whole.tensors.items():
        parts.add_tensor(name, whole.rows(name).view(np.float32).reshape(tensor.shape))
    parts.write_header_to_file()
    parts.write_kv_data_to_file()
    parts.write_tensors_to_file()
    parts.close()
    first, second, *_ = sorted(tmp_path.glob("split-*.gguf"))
    split = GgufFile(first)
    assert len(split.paths) == 3
    assert all((split.rows(name) == whole.rows(name)).all() for name in whole.tensors)
    folder = find_model_folder(str(first))
    assert open_checkpoint(folder).names == open_checkpoint(find_model_folder(str(file))).names
    second.unlink()
    with pytest.raises(CheckpointError, match=r"has 3 parts, and split-00002-of-00003\.gguf is missing"):
        find_model_folder(str(first))


def test_byte_level_pieces_are_split_as_their_kind_says(tmp_path: Path) -> None:
    alphabet = list(json.loads(Tokenizer.of_bytes()._backend.to_str())["model"]["vocab"])
    tokens = [*sorted(alphabet), "12", "123", "1234", "<|end|>"]
    given: dict[str, Any] = {
        "merges": ["1 2", "12 3", "123 4"],
        "token_type": [1] * 259 + [3],
        "eos_token_id": 259,
        "bos_token_id": 259,
    }
    for kind, pieces in {"llama-bpe": ["123", "4"], "qwen2": ["1", "2", "3", "4"], "gpt-2": ["1234"]}.items():
        folder = tmp_path / kind
        folder.mkdir()
        tokenizer = tokenizer_in(folder, tokenizer_of(tokens, pre=kind, **given))
        assert tokenizer.encode("1234<|end|>") == [tokens.index(piece) for piece in (*pieces, "<|end|>")]
        begins = tokenizer.encode("1", add_special_tokens=True)[0] == 259
        assert begins == (kind == "llama-bpe")


def test_scales_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    file, _ = write(tmp_path, "llama", "llama")
    content = bytearray(file.read_bytes())
    entry = GgufFile(file).tensors["blk.1.attn_q.weight"]
    for place in (0, 2):  # the factors of scales and of minima
        damaged = bytes(_put(entry.first + place, b"\x00\x7e")(bytes(content)))
        (tmp_path / f"{place}.gguf").write_bytes(damaged)
        with pytest.raises(CheckpointError, match="hold NaN or infinity"):
            load(tmp_path / f"{place}.gguf")


def _cut(share: float) -> Callable[[bytes], bytes]:
    return lambda content: content[: int(share * len(content))]


def _put(at: int, value: bytes) -> Callable[[bytes], bytes]:
    return lambda content: content[:at] + value + content[at + len(value) :]


def _put_type(number: int) -> Callable[[bytes], bytes]:
    """Another data type for the first tensor."""

    def change(content: bytes) -> bytes:
        at = content.index(b"token_embd.weight") + len(b"token_embd.weight") + 4 + 16
        return content[:at] + struct.pack("<I", number) + content[at + 4 :]

    return change


@pytest.mark.parametrize(
    ("damage", "changes", "message"),
    [
        (_cut(0.0), {}, "cannot be read"),
        (_cut(0.001), {}, "cut inside its header"),
        (_cut(0.5), {}, "ends behind the file"),
        (_put(0, b"GGML"), {}, "is no GGUF file"),
        (_put(4, b"\x01"), {}, "version 1"),
        (_put(8, b"\xff" * 8), {}, "values follow"),
        (_put(16, b"\xff" * 8), {}, "values follow"),
        (None, {"general.architecture": "falcon"}, "architecture 'falcon' are not served"),
        (None, {"llama.expert_count": 8}, "has no llama.expert_used_count"),
        (None, {"llama.embedding_length": 0}, "are no model"),
        (None, {"llama.attention.head_count": "4"}, "must be int"),
        (None, {"llama.attention.head_count": 3}, "do not divide|do not fit|no tensor|has shape"),
        (None, {"llama.rope.scaling.type": "longest"}, "positions scaled by 'longest'"),
        (None, {"llama.attention.sliding_window": 512}, "sliding_window 512 is not supported"),
        (None, {"split.count": 2}, "has 2 parts, and model-00002-of-00002.gguf is missing"),
        (None, {"split.no": 1, "split.count": 2}, "a later part of a GGUF file; give the first, model-00001-of-00002"),
        (_put_type(16), {}, "has data type IQ2_XXS; served: F32, F16, BF16, Q4_0"),
        (_put_type(99), {}, "has data type number 99; served"),
        (None, {"llama.block_count": 3}, "no tensor"),
        (None, {"llama.block_count": 1}, "does not use"),
        (None, {"general.alignment": 0}, "alignment cannot be"),
        (None, {"tokenizer.ggml.model": "bert"}, "of kind 'bert'"),
        (None, {"tokenizer.ggml.pre": "kimi-k2"}, "as 'kimi-k2'"),
        (None, {"tokenizer.ggml.merges": ["a"]}, "not merges of its tokens"),
        (None, {"tokenizer.ggml.tokens": [1, 2]}, "must be texts"),
        (None, {"tokenizer.ggml.eos_token_id": 999}, "of 311 tokens"),
    ],
)
def test_what_is_not_served_is_said_in_a_sentence(
    tmp_path: Path, damage: Callable[[bytes], bytes] | None, changes: dict[str, object], message: str
) -> None:
    file, _ = write(tmp_path, "llama", "llama", is_plain=True, changes=changes)
    if damage is not None:
        file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(CheckpointError, match=message):
        load(file)


@pytest.mark.parametrize("count", [40, pytest.param(300, marks=pytest.mark.long)])
def test_damaged_files_are_refused_in_one_line(tmp_path: Path, count: int) -> None:
    """Cut anywhere, or with other bytes among the settings, which come first."""
    file, _ = write(tmp_path, "llama", "llama", is_plain=True)
    content, draw = file.read_bytes(), random.Random(count)
    for _ in range(count):
        damaged = bytearray(content)
        if draw.random() < 0.2:
            damaged = damaged[: draw.randrange(len(damaged))]
        for _ in range(draw.randrange(1, 4)):
            value = draw.choice([b"\xff" * 4, b"\0" * 4, struct.pack("<f", np.nan), bytes([draw.randrange(256)])])
            at = draw.randrange(1200)
            damaged[at : at + len(value)] = value
        (tmp_path / "damaged.gguf").write_bytes(bytes(damaged))
        try:
            Tokenizer.from_folder(find_model_folder(str(tmp_path / "damaged.gguf")))
        except CheckpointError as error:
            assert "\n" not in str(error)  # noqa: PT017 - most are refused, but not all


def test_the_hub_gives_the_file_of_a_data_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the hub's own code, from its cache."""
    file, _ = write(tmp_path, "llama", "llama", is_plain=True)
    repository = tmp_path / "hub" / "models--some--model"
    snapshot = repository / "snapshots" / ("0" * 40)
    (snapshot / "BF16").mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    for name in ("model-Q4_K_M.gguf", "model-Q4_K.gguf", "mmproj-model-Q8_0.gguf", "BF16/model-bf16.gguf"):
        (snapshot / name).write_bytes(file.read_bytes())
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for data_type, name in {
        "Q4_K_M": "model-Q4_K_M.gguf",
        "q4_k": "model-Q4_K.gguf",
        "BF16": "model-bf16.gguf",
    }.items():
        folder = find_model_folder(f"some/model:{data_type}")
        assert (folder / "model.gguf").resolve().name == name
    with pytest.raises(CheckpointError, match="has no GGUF file whose name ends in Q8_0"):
        find_model_folder("some/model:Q8_0")
