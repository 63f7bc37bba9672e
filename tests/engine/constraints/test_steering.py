"""What may come next in a sequence, and what constraints cost at most; no model computes here."""

import contextlib
import json
import time
from concurrent.futures import Future

import numpy as np
import pytest

from engine.batch import TokenMasks
from engine.constraints.compiler import MAX_COMPILED, GrammarCompiler
from engine.constraints.steered_sequence import SteeredSequence
from engine.constraints.steering import Steering
from engine.constraints.thinking import Thinking
from engine.constraints.vocabulary import Vocabulary
from engine.errors import InvalidRequest
from engine.runner.leader import decode_masks, encode_masks
from engine.sampling_params import Constraint, SamplingParams, ThoughtTags
from engine.text.tokenizer import Tokenizer

BYTES = Tokenizer.of_bytes()
STOP = 258
WORDS = Vocabulary(BYTES, 260, frozenset({STOP}))


def steered(regex: str, thinking: Thinking | None = None) -> SteeredSequence:
    compiled: Future[object] = Future()
    compiled.set_result(GrammarCompiler(WORDS).compile(Constraint("regex", regex)))
    return SteeredSequence(WORDS, compiled, thinking, frozenset({STOP}))  # type: ignore[arg-type]


def allowed(sequence: SteeredSequence) -> set[int]:
    words = Steering(GrammarCompiler(WORDS)).masks_of([sequence])
    return set(np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")[: WORDS.size]).tolist())


def say(sequence: SteeredSequence, text: str) -> list[str | None]:
    return [sequence.advance(token, is_thinking=False, text="") for token in BYTES.encode(text)]


def test_a_token_that_ends_is_allowed_where_the_text_may_end() -> None:
    sequence = steered("ab*|acd")
    letters = {letter: BYTES.encode(letter)[0] for letter in "abcd"}
    assert allowed(sequence) == {letters["a"]}
    assert say(sequence, "a") == [None]
    assert allowed(sequence) == {STOP, letters["b"], letters["c"]}
    assert say(sequence, "cd") == [None, "stop"]
    other = steered("ab*|acd")
    assert say(other, "ab") == [None, None]
    assert allowed(other) == {STOP, letters["b"]}
    assert say(other, "x") == ["abort"]


def test_the_end_tag_is_forced_and_goes_on_where_the_model_has_begun_it() -> None:
    begin, end = BYTES.encode("<t>"), BYTES.encode("</t>")
    assert Thinking(begin, end, is_open=False, budget=3).phase == "answer"
    thinking = Thinking(begin, end, is_open=True, budget=3)
    sequence = steered("[0-9]", thinking)
    assert STOP not in allowed(sequence)
    for token in BYTES.encode("a</"):
        sequence.advance(token, is_thinking=True, text="")
    assert allowed(sequence) == {BYTES.encode("t")[0]}
    sequence.advance(BYTES.encode("t")[0], is_thinking=True, text="")
    assert allowed(sequence) == {BYTES.encode(">")[0]}
    sequence.advance(BYTES.encode(">")[0], is_thinking=False, text="")
    assert allowed(sequence) == set(BYTES.encode("0123456789"))


def masks_along(sequence: SteeredSequence, text: str) -> list[set[int]]:
    """What is allowed at first, and behind each proposed token."""
    drafts = BYTES.encode(text)
    rows = np.zeros((len(drafts) + 1, WORDS.num_words), np.int32)
    sequence.fill_masks(rows, drafts)
    bits = np.unpackbits(WORDS.of_step(rows).view(np.uint8), axis=1, bitorder="little")[:, : WORDS.size]
    return [set(np.flatnonzero(row).tolist()) for row in bits]


@pytest.mark.parametrize("regex", ["ab*c|acd", "(abc){2,4}x?"])
def test_masks_behind_proposed_tokens_are_those_of_a_sequence_that_has_them(regex: str) -> None:
    for text in ("", "a", "ab", "abc", "abcab"):
        sequence = steered(regex)
        drafts = text[: sequence.num_allowed(BYTES.encode(text))]
        before = allowed(sequence)
        along = masks_along(sequence, drafts)
        for length in range(len(drafts) + 1):
            reached = steered(regex)
            if None not in (reasons := say(reached, drafts[:length])) and reasons:
                break  # the text is whole: nothing follows
            assert along[length] == allowed(reached)
        assert allowed(sequence) == before, "the state has not moved"


def test_proposed_tokens_end_before_one_that_the_grammar_forbids() -> None:
    sequence = steered("ab*c")
    assert sequence.num_allowed(BYTES.encode("abbx")) == 3
    assert sequence.num_allowed(BYTES.encode("x")) == 0


def test_no_token_is_proposed_beyond_a_thinking_budget_or_before_a_grammar() -> None:
    begin, end = BYTES.encode("<t>"), BYTES.encode("</t>")
    thinking = Thinking(begin, end, is_open=True, budget=6)
    free = SteeredSequence(WORDS, None, thinking, frozenset({STOP}))
    text = BYTES.encode("abcdefgh")
    assert free.num_allowed(text) == 5
    free.advance(text[0], is_thinking=True, text="")
    assert free.num_allowed(text) == 4
    assert steered("[0-9]", Thinking(begin, end, is_open=True, budget=6)).num_allowed(text) == 0


def test_a_budget_needs_tags() -> None:
    with pytest.raises(InvalidRequest, match="thinking_budget"):
        SamplingParams(thinking_budget=3)
    assert SamplingParams(thinking_budget=3, thoughts=ThoughtTags("<t>", "</t>")).needs_masks


def test_masks_are_the_same_for_every_rank() -> None:
    masks = TokenMasks(np.array([0, 3]), np.arange(18, dtype=np.int32).reshape(2, 9))
    heard = decode_masks(encode_masks(masks))
    assert (heard.draws.tolist(), heard.words.tolist()) == (masks.draws.tolist(), masks.words.tolist())
    none = decode_masks(encode_masks(TokenMasks(np.zeros(0, np.int64), np.zeros((0, 9), np.int32))))
    assert len(none.draws) == len(none.words) == 0


HOSTILE = {
    "many properties": {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(2000)}},
    "nested repetitions": {"type": "string", "pattern": "^((a{1,99}){1,99}b?){1,99}$"},
    "many items": {"type": "array", "items": {"type": "integer"}, "minItems": 10**6},
    "a reference to itself": {"$ref": "#"},
    "many ways": {
        "allOf": [{"anyOf": [{"properties": {f"p{i}{j}": {"type": "string"}}} for i in range(20)]} for j in range(10)]
    },
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_a_hostile_schema_is_compiled_or_refused_in_bounded_time(name: str) -> None:
    started = time.thread_time()
    with contextlib.suppress(InvalidRequest):
        sequence = (
            GrammarCompiler(WORDS).compile(Constraint("json_schema", json.dumps(HOSTILE[name]))).start.deep_copy()
        )
        sequence.compute_bitmask()
    assert time.thread_time() - started < 10


def test_only_the_constraints_used_last_are_kept() -> None:
    compiler = GrammarCompiler(WORDS)
    first = compiler.compile(Constraint("regex", "x0"))
    for index in range(MAX_COMPILED):
        assert compiler.compile(Constraint("regex", "x0")) is first
        compiler.compile(Constraint("regex", f"y{index}"))
    for index in range(MAX_COMPILED):
        compiler.compile(Constraint("regex", f"z{index}"))
    assert compiler.compile(Constraint("regex", "x0")) is not first
