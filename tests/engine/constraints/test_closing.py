"""Answers are whole however few tokens they may have, nothing else is forbidden, and no model computes here."""

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from engine.constraints.compiler import GrammarCompiler
from engine.constraints.steered_sequence import SteeredSequence
from engine.constraints.steering import Steering
from engine.constraints.thinking import Thinking
from engine.constraints.vocabulary import Vocabulary
from engine.errors import InvalidRequest
from engine.sampling_params import Constraint, SamplingParams, ToolFormat, ToolFunction
from engine.text.tokenizer import Tokenizer
from engine.text.tool_calls.grammars import CLOSED, call_grammar
from tests.engine.constraints.exact_filter import PAIR, pair_rest
from tests.engine.constraints.schemas import ENDLESS

RAVEN = Tokenizer.from_folder(Path(__file__).parents[3] / "demo_models/raven")
STOP = 4
WORDS = Vocabulary(RAVEN, 2048, frozenset({STOP}))
STEERING = Steering(GrammarCompiler(WORDS))
BYTES = Tokenizer.of_bytes()

Choose = Callable[[list[int]], int]


def opened(constraint: Constraint, most: int, steering: Steering = STEERING) -> SteeredSequence:
    compiler = steering.compiler
    return SteeredSequence(compiler.vocabulary, compiler.start(constraint), None, frozenset({STOP}), most)


def least(constraint: Constraint) -> int:
    closing = STEERING.compiler.compile(constraint).closing
    assert closing is not None
    return len(closing.shortest)


def allowed(sequence: SteeredSequence, steering: Steering = STEERING) -> list[int]:
    words = steering.masks_of([sequence])
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    return np.flatnonzero(bits[: steering.compiler.vocabulary.size]).tolist()


def walk(sequence: SteeredSequence, choose: Choose, most: int, steering: Steering = STEERING) -> tuple[list[int], str]:
    """The tokens of an answer, and how it ends."""
    tokens: list[int] = []
    while len(tokens) < most:
        token = choose(allowed(sequence, steering))
        if token == STOP:
            return tokens, "stop"
        tokens.append(token)
        if (reason := sequence.advance(token, is_thinking=False, text="")) is not None:
            return tokens, reason
    return tokens, "length"


def at_random(seed: int) -> Choose:
    """Draws tokens, the least of them more often than others: those are bytes, and quotes and brackets among them."""
    chance = random.Random(seed)
    return lambda ids: ids[int(len(ids) * chance.random() ** 2)]


def test_answers_are_whole_and_valid() -> None:
    chance = random.Random(3)
    for seed, schema in enumerate(ENDLESS * 2):
        constraint = Constraint("json_schema", json.dumps(schema))
        fewest = least(constraint)
        most = chance.choice((fewest, fewest + chance.randint(1, 12), chance.randint(fewest, 120)))
        tokens, reason = walk(opened(constraint, most), at_random(seed), most)
        text = RAVEN.decode(tokens)
        assert reason == "stop", (schema, most, text)
        assert jsonschema.Draft202012Validator(schema).is_valid(json.loads(text)), (schema, most, text)


def test_answers_that_end_by_themselves_are_not_changed() -> None:
    """Every prefix of an answer that fits allows the next token of that answer."""
    num_followed = 0
    for seed, schema in enumerate(ENDLESS * 2):
        open_constraint = Constraint("json_schema", json.dumps(schema), closes=False)
        tokens, reason = walk(opened(open_constraint, 10_000), at_random(seed), 200)
        if reason != "stop" or re.search(r"[0-9]{17}|[eE][-+]?[0-9]{3}", RAVEN.decode(tokens)):
            continue
        sequence = opened(Constraint("json_schema", json.dumps(schema)), len(tokens))
        for token in tokens:
            assert token in allowed(sequence), (schema, RAVEN.decode(tokens))
            sequence.advance(token, is_thinking=False, text="")
        num_followed += 1
    assert num_followed >= 10


def test_what_is_allowed_is_what_leaves_enough_tokens() -> None:
    """Tokens are bytes here, so that the fewest that complete a text are known."""
    vocabulary = Vocabulary(BYTES, 260, frozenset({258}))
    steering = Steering(GrammarCompiler(vocabulary))
    constraint, free = Constraint("json_schema", PAIR), Constraint("json_schema", PAIR, closes=False)
    shortest = int(pair_rest(b""))
    for seed, most in enumerate([shortest, shortest + 1, shortest + 2, shortest + 5, shortest + 9] * 2):
        chance = random.Random(seed)
        closed, other = (opened(each, most, steering) for each in (constraint, free))
        text = b""
        for num_left in range(most, 0, -1):
            fitting = [i for i in allowed(other, steering) if pair_rest(text + BYTES.token_bytes(i)) < num_left]
            assert allowed(closed, steering) == fitting
            token = chance.choice(fitting)
            text += BYTES.token_bytes(token)
            reasons = [each.advance(token, is_thinking=False, text="") for each in (closed, other)]
            if reasons[0] is not None:
                break
        assert reasons == ["stop", "stop"]


def test_a_request_whose_shortest_answer_does_not_fit_is_refused() -> None:
    constraint = Constraint("json_schema", json.dumps(ENDLESS[0]))
    fewest = least(constraint)
    STEERING.compiler.check(SamplingParams(max_tokens=fewest, constraint=constraint), 100)
    for most, room in ((fewest - 1, 100), (100, fewest - 1)):
        with pytest.raises(InvalidRequest, match=f"has {fewest} tokens, and {fewest - 1} may come") as caught:
            STEERING.compiler.check(SamplingParams(max_tokens=most, constraint=constraint), room)
        assert caught.value.param == "max_tokens"


def test_nothing_is_closed_where_it_is_not_asked_for() -> None:
    compiler = STEERING.compiler
    for constraint in (
        Constraint("regex", "a+b"),
        Constraint("choice", '["x"]'),
        Constraint("json_object", closes=False),
    ):
        assert compiler.compile(constraint).closing is None
    assert GrammarCompiler(WORDS, closes_answers=False).compile(Constraint("json_object")).closing is None
    assert compiler.compile(Constraint("json_object")).closing is not None


@pytest.mark.parametrize("schema", [{"type": "number"}, ENDLESS[0], {"type": "array", "items": {"type": "number"}}])
def test_numbers_have_few_digits(schema: dict[str, object]) -> None:
    """Also where a token has several of them, and where the model would go on writing them."""
    digits = {i for i in range(WORDS.size) if re.fullmatch(rb"[0-9]+", RAVEN.token_bytes(i))}

    def choose(ids: list[int]) -> int:
        chance.shuffle(ids)
        return next((i for i in ids if i in digits), ids[0])

    for seed in range(4):
        chance = random.Random(seed)
        tokens, _ = walk(opened(Constraint("json_schema", json.dumps(schema)), 400), choose, 400)
        text = RAVEN.decode(tokens)
        assert max(map(len, re.findall("[0-9]+", text))) <= 19
        assert all(len(part) <= 17 for part in re.findall(r"\.([0-9]+)", text))
        assert all(len(part) <= 2 for part in re.findall(r"[eE][-+]?([0-9]+)", text))


def functions() -> Iterator[ToolFunction]:
    properties = {"q": {"type": "string"}, "n": {"type": "integer"}, "x": {"type": "number"}}
    yield ToolFunction("look_up", json.dumps({"type": "object", "properties": properties, "required": ["q", "n"]}))
    yield ToolFunction("now", json.dumps({"type": "object", "properties": {}}))


@pytest.mark.parametrize("tool_format", sorted(CLOSED))
def test_calls_are_whole(tool_format: ToolFormat) -> None:
    grammar = call_grammar(tool_format, list(functions()), lambda text: None, max_calls=2)
    constraint = Constraint("grammar", grammar, closes=True)
    fewest = least(constraint)
    for seed, most in enumerate((fewest, fewest + 20)):
        tokens, reason = walk(opened(constraint, most), at_random(seed), most)
        assert reason == "stop", RAVEN.decode(tokens)


@pytest.mark.parametrize("is_open", [True, False])
def test_thoughts_leave_room_for_the_answer(is_open: bool) -> None:
    constraint = Constraint("json_schema", json.dumps(ENDLESS[0]))
    fewest = least(constraint)
    begin, end = [3], RAVEN.encode("</think>")
    thinking = Thinking(begin, end, is_open=is_open, budget=None)
    most = fewest + len(end) + 6
    compiled = STEERING.compiler.start(constraint)
    sequence = SteeredSequence(WORDS, compiled, thinking, frozenset({STOP}), most)
    tokens: list[int] = []
    reason = None
    letters = RAVEN.encode("x")[0]
    while reason is None and len(tokens) < most:
        ids = allowed(sequence)
        if thinking.phase == "start":
            token = begin[0]
        elif thinking.phase == "thinking":
            token = letters if letters in ids and len(ids) > 1 else ids[0]
        else:
            token = ids[-1]
        tokens.append(token)
        is_over = tokens[-len(end) :] == end
        reason = sequence.advance(token, is_thinking=thinking.phase != "answer" and not is_over, text="")
    assert reason == "stop"
    assert thinking.phase == "answer"


def test_a_model_does_not_begin_to_think_where_no_answer_would_fit_behind_it() -> None:
    constraint = Constraint("json_schema", json.dumps(ENDLESS[0]))
    fewest = least(constraint)
    end = RAVEN.encode("</think>")
    for spare, may_think in ((len(end) + 1, True), (len(end), False)):
        thinking = Thinking([3], end, is_open=False, budget=None)
        compiled = STEERING.compiler.start(constraint)
        sequence = SteeredSequence(WORDS, compiled, thinking, frozenset({STOP}), fewest + spare)
        assert (3 in allowed(sequence)) is may_think
