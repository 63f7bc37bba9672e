"""A server reads the tokens for constraints while it loads the model; the rest is read in short pieces, later."""

from pathlib import Path

import pytest

from engine.async_engine import AsyncEngine
from engine.config import EngineConfig
from engine.constraints.byte_vocabulary import ByteVocabulary
from engine.constraints.compiler import GrammarCompiler
from engine.constraints.vocabulary import Vocabulary
from engine.sampling_params import Constraint
from engine.text.tokenizer import Tokenizer

FOLDER = Path(__file__).parents[3] / "demo_models/raven"
RAVEN = Tokenizer.from_folder(FOLDER)
CONSTRAINT = Constraint("json_schema", '{"type": "object"}')


class CountedTokens:
    """The tokens of a demo model, which count how often they are read."""

    def __init__(self) -> None:
        self.num_reads = 0

    def encode(self, text: str) -> list[int]:
        return RAVEN.encode(text)

    def token_bytes(self, token_id: int) -> bytes:
        self.num_reads += 1
        return RAVEN.token_bytes(token_id)

    def is_special(self, token_id: int) -> bool:
        return RAVEN.is_special(token_id)


def test_a_prepared_compiler_reads_no_token_for_the_first_constraint() -> None:
    tokens = CountedTokens()
    compiler = GrammarCompiler(Vocabulary(tokens, RAVEN.vocab_size, RAVEN.eos_token_ids))
    compiler.prepare()
    assert tokens.num_reads == RAVEN.vocab_size
    closing = compiler.compile(CONSTRAINT).closing
    assert closing is not None
    assert {"kinds", "kinds_in_text", "num_digits", "_known", "_longest"} <= vars(closing.words).keys()
    assert tokens.num_reads == RAVEN.vocab_size
    compiler.shut_down()


def test_what_is_computed_from_all_tokens_pauses_after_each_piece_and_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.constraints.byte_vocabulary._PIECE_S", 0.0)
    words, pauses = ByteVocabulary(Vocabulary(RAVEN, RAVEN.vocab_size, RAVEN.eos_token_ids)), []
    words.read(lambda: pauses.append(1))
    assert len(pauses) > 5 * RAVEN.vocab_size // 64
    at_once = ByteVocabulary(Vocabulary(RAVEN, RAVEN.vocab_size, RAVEN.eos_token_ids))
    assert words.kinds.tolist() == at_once.kinds.tolist()
    assert words.kinds_in_text.tolist() == at_once.kinds_in_text.tolist()
    assert len(pauses) < 7 * (RAVEN.vocab_size // 64 + 1)


def test_a_compiler_that_ends_does_not_wait_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.constraints.byte_vocabulary._PIECE_S", 0.0)
    monkeypatch.setattr("engine.constraints.compiler._PAUSE_S", 1000.0)
    compiler = GrammarCompiler(Vocabulary(RAVEN, RAVEN.vocab_size, RAVEN.eos_token_ids))
    compiler.prepare()
    compiler.shut_down()
    assert compiler.compile(CONSTRAINT).closing is not None


async def test_an_engine_that_serves_has_read_the_tokens_when_it_is_loaded() -> None:
    engine = await AsyncEngine.from_config(EngineConfig(str(FOLDER), num_threads=1, kv_cache_bytes=4 << 20))
    try:
        vocabulary = engine._serving.compiler.vocabulary
        assert vocabulary._read is not None
    finally:
        await engine.shutdown()
