"""A GGUF file computes what its dequantised weights compute, with the config and the tokenizer that it holds."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.config import EngineConfig
from engine.errors import CheckpointError
from engine.formats.gguf.file import GgufFile
from engine.kernels.choice import choose_operators
from engine.kernels.torch_operators import TorchOperators
from engine.loader import find_model_folder, read_config
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
    """The file has factors for frequencies; the config has the numbers that they come from."""
    divisors = []
    for channel in range(0, 64, 2):
        turns = 8192 * 500000.0 ** (-channel / 64) / (2 * np.pi)
        smooth = min(max((turns - 1) / 3, 0), 1)
        divisors.append(1 / ((1 - smooth) / 8 + smooth))
    vector, matrix = np.array(divisors, np.float32), np.zeros((8, 256), np.float32)
    settings = {
        "general.architecture": "llama",
        **{f"llama.{name}": 2 for name in ("block_count", "context_length", "feed_forward_length")},
        "llama.attention.head_count": 4,
        "llama.embedding_length": 256,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 500000.0,
        **tokenizer_of([chr(i) for i in range(8)]),
    }
    tensors = {"token_embd.weight": (matrix, writer.f32), "rope_freqs.weight": (vector, writer.f32)}
    writer.write(tmp_path / "a.gguf", settings, tensors)
    rope = read_config(find_model_folder(str(tmp_path / "a.gguf")))["rope_parameters"]
    assert (rope["rope_type"], rope["factor"], rope["rope_theta"]) == ("llama3", 8.0, 500000.0)
    tensors["rope_freqs.weight"] = vector * 2, writer.f32
    writer.write(tmp_path / "b.gguf", settings, tensors)
    with pytest.raises(CheckpointError, match=r"not those of Llama 3\.1"):
        find_model_folder(str(tmp_path / "b.gguf"))


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
        (None, {"llama.expert_count": 8}, "with experts are not served"),
        (None, {"llama.embedding_length": 0}, "are no model"),
        (None, {"llama.attention.head_count": "4"}, "must be int"),
        (None, {"llama.attention.head_count": 3}, "do not divide|do not fit|no tensor|has shape"),
        (None, {"llama.rope.scaling.type": "yarn"}, "positions scaled by 'yarn'"),
        (None, {"llama.block_count": 3}, "no tensor"),
        (None, {"llama.block_count": 1}, "does not use"),
        (None, {"general.alignment": 0}, "alignment cannot be"),
        (None, {"tokenizer.ggml.model": "bert"}, "of kind 'bert'"),
        (None, {"tokenizer.ggml.pre": "deepseek-llm"}, "as 'deepseek-llm'"),
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
