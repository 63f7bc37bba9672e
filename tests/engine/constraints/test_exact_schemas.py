"""What a grammar of a JSON schema lets through is valid by the jsonschema package: integers to the last digit, names
with escapes, sets; what cannot be followed is refused in one sentence."""

import json
import random
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from engine.constraints.compiler import GrammarCompiler
from engine.constraints.vocabulary import Vocabulary
from engine.errors import InvalidRequest
from engine.sampling_params import Constraint
from engine.text.tokenizer import Tokenizer

BYTES = Tokenizer.of_bytes()
COMPILER = GrammarCompiler(Vocabulary(BYTES, 260, frozenset({258})))
EDGES = (2**53, 2**63, 2**64, -(2**53), -(2**63), -(2**64))


def takes(schema: Any, text: str) -> bool:
    """Whether an answer may be this text as a whole."""
    matcher = COMPILER.compile(Constraint("json_schema", json.dumps(schema))).start.deep_copy()
    token_ids = BYTES.encode(text)
    return matcher.try_consume_tokens(token_ids) == len(token_ids) and matcher.is_accepting()


def near_edges(count: int) -> Iterator[dict[str, Any]]:
    chance = random.Random(11)

    def number() -> int:
        return chance.choice(EDGES) + chance.choice((0, 0, 1, -1, chance.randint(-3000, 3000)))

    for _ in range(count):
        kind = chance.choice(("enum", "const", "bounds", "bounds", "either", "nested"))
        schema: dict[str, Any] = {"type": chance.choice(("integer", "integer", "number"))}
        if kind == "enum":
            schema = {"enum": [number(), 5, "x"]}
        elif kind == "const":
            schema = {"const": chance.choice((number(), [number()], {"a": number()}))}
        elif kind == "either":
            schema |= {chance.choice(("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")): number()}
        else:
            low, high = sorted((number(), number()))
            schema |= {chance.choice(("minimum", "exclusiveMinimum")): low}
            schema |= {chance.choice(("maximum", "exclusiveMaximum")): high}
            if chance.random() < 0.2:
                schema["multipleOf"] = chance.choice((2, 7, 1000))
        yield schema


def test_integers_are_exact_to_the_last_digit() -> None:
    """300 schemas; the numbers around every bound, and the shortest answer."""
    num_served = num_taken = 0
    for schema in near_edges(300):
        try:
            grammar = COMPILER.compile(Constraint("json_schema", json.dumps(schema)))
        except InvalidRequest:
            continue
        num_served += 1
        values = [value for value in _numbers(schema) if isinstance(value, int)]
        near = {value + step for value in (*values, *EDGES, 0) for step in (-1025, -2, -1, 0, 1, 2, 1025)}
        taken = [value for value in near if takes(schema, str(value))]
        num_taken += len(taken)
        assert grammar.closing is not None
        shortest = bytes(symbol for part in grammar.closing.shortest for symbol in part).decode()
        for value in (*taken, json.loads(shortest)):
            assert jsonschema.Draft202012Validator(schema).is_valid(value), (schema, value)
    assert num_served > 150
    assert num_taken > 1000


def _numbers(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _numbers(each)
    else:
        yield value


ANY = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TEXTS = {
    **ANY,
    "properties": {"a": {"type": "integer"}, "bc": {}, "z]^-": {}},
    "additionalProperties": {"type": "string"},
}
SET = {"type": "array", "items": {"enum": [1, 2, "x"]}, "uniqueItems": True}
NAMED = {"type": "object", "propertyNames": {"enum": ["x", "y"]}, "additionalProperties": {"type": "integer"}}
DECIMAL = {"type": "string", "pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"}


@pytest.mark.parametrize(
    ("schema", "members", "others"),
    [
        (ANY, ['{"a":1,"b":"x"}', '{"a":1,"é":"x"}'], [r'{"a":1,"\u0061":"x"}', '{"a":1,"a":"x"}']),
        (TEXTS, ['{"a":1,"b":"x"}', '{"a":1,"bc":5,"bcd":"x","z]":"1"}'], [r'{"a":1,"\u0061":"x"}', '{"a":1,"q":1}']),
        (SET, ["[]", '["x",1]', "[1,2]", '[2, "x", 1]'], ["[1,1]", "[3]"]),
        ({**SET, "minItems": 3}, ['[2,"x",1]'], ["[1,2]"]),
        ({"type": "array", "items": {"type": "boolean"}, "uniqueItems": True}, ["[true,false]"], ["[true,true]"]),
        ({"type": "array", "items": {}, "uniqueItems": False}, ["[1,1]"], []),
        (NAMED, ['{"x":1}', "{}", '{"x":1,"y":2}'], ['{"z":1}', '{"x":"1"}']),
        ({"type": "object", "propertyNames": {"pattern": "^a"}}, ['{"ab":1}'], ['{"b":1}']),
        (DECIMAL, ['"1.5"', '"5."', '"-.5"'], ['"."', '"-"', '"1e5"']),
        ({"type": "string", "format": "password"}, ['"x"'], []),
        ({"type": "string", "format": "date"}, ['"2025-01-31"'], ['"x"']),
        ({"type": "integer"}, ["0", "-5", str(2**62)], [str(2**64), "1" * 30]),
    ],
)
def test_what_is_let_through(schema: dict[str, Any], members: list[str], others: list[str]) -> None:
    assert [text for text in members if not takes(schema, text)] == []
    assert [text for text in others if takes(schema, text)] == []


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ({"properties": {"a": {"not": {}}}}, "the keyword 'not' is not supported, at #/properties/a"),
        ({"items": {"const": 2**53 + 1}}, "9007199254740993 cannot be kept exact above 2^53, in 'const' at #/items"),
        ({"type": "integer", "minimum": 2**64}, "no number between the bounds can be kept exact, at #"),
        ({"type": "array", "uniqueItems": True, "items": {"type": "integer"}}, "'uniqueItems' is followed only"),
        ({"type": "object", "propertyNames": {"maxLength": 3}}, "'propertyNames' is not supported, at #"),
        (
            {"anyOf": [{"type": "string", "pattern": "^(?=a)b"}]},
            "look-behind are not supported, in 'pattern' at #/anyOf/0",
        ),
        ({"patternProperties": {"^x": {"type": "integer"}, "^xx": {}}}, "are not disjoint"),
        ({"type": "integer", "multipleOf": 2**33}, "too many digits"),
    ],
)
def test_what_cannot_be_followed_is_refused_in_one_sentence(schema: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        COMPILER.compile(Constraint("json_schema", json.dumps(schema)))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "%json" not in str(caught.value)
