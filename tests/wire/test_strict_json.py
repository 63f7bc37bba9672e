"""JSON that is refused, and how validation errors are named."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from wire.errors import ApiError, ErrorCode
from wire.strict_json import MAX_CONTAINERS, MAX_DEPTH, MAX_KEYS, MAX_VALUES, parse_json, parse_model

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


class Example(BaseModel):
    model_config = ConfigDict(extra="forbid")

    number: int
    name: str = ""


@given(VALUES)
def test_ordinary_json_is_understood(value: Any) -> None:
    assert parse_json(json.dumps(value).encode()) == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode()) == value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nan",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a": 18446744073709551616}',
        b'{"a": -9223372036854775809}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b'"\\ud800"',
        b'{"\\udfff": 1}',
        b'"\\u0000"',
        b'"\xff"',
        b"\xff\xfe{}",
        b"{'a': 1}",
        b'{"a": 1,}',
        b"[" * 100_000,
        b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
        b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1),
    ],
)
def test_what_cannot_be_trusted_is_refused_as_invalid_json(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        parse_json(body)
    assert caught.value.code is ErrorCode.INVALID_JSON
    assert caught.value.status == 400


@pytest.mark.timeout(20)
@pytest.mark.parametrize("end", [b"", b"\\", b'"', b'"}'], ids=["open", "backslash", "closed", "whole"])
@pytest.mark.parametrize("part", [b'\\"', b'"', b'"[', b'\\\\"'], ids=["escaped", "quotes", "strings", "pairs"])
def test_the_time_is_linear_in_the_length_of_the_body(part: bytes, end: bytes) -> None:
    """A quadratic search would take minutes; every other request of the service would wait."""
    with contextlib.suppress(ApiError):
        parse_json(b'{"a": "' + part * 400_000 + end)


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"[]," * MAX_CONTAINERS + b"0]",
        b"[" + b"{}," * MAX_CONTAINERS + b"0]",
        b"[" + b"0," * (MAX_VALUES + 1) + b"0]",
        json.dumps({"o": {str(number): 0 for number in range(MAX_KEYS + 1)}}).encode(),
    ],
    ids=["arrays", "objects", "values", "keys"],
)
def test_more_values_than_any_request_needs_are_refused(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        parse_json(body)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_values_within_the_limits_are_read() -> None:
    assert len(parse_json(b"[" + b"[]," * (MAX_CONTAINERS - 2) + b"[]]")) == MAX_CONTAINERS - 1
    assert len(parse_json(b"[" + b"1," * MAX_VALUES + b"1]")) == MAX_VALUES + 1
    assert len(parse_json(json.dumps({str(number): 0 for number in range(MAX_KEYS)}).encode())) == MAX_KEYS


def test_brackets_commas_and_quotes_in_strings_are_not_counted() -> None:
    text = '[{,"\\]}' * MAX_VALUES
    assert parse_json(json.dumps({"text": text}).encode()) == {"text": text}


def test_the_name_of_an_unknown_field_is_cut() -> None:
    with pytest.raises(ApiError) as caught:
        parse_model(Example, b'{"number": 1, "%s": 2}' % (b"x" * 100_000))
    assert len(caught.value.message) < 200


def test_the_deepest_allowed_nesting_is_read() -> None:
    assert parse_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH) is not None


def test_brackets_inside_strings_are_no_nesting() -> None:
    text = "[{" * 100 + '"\\'
    assert parse_json(json.dumps({"text": text}).encode()) == {"text": text}


@given(st.binary(max_size=64))
def test_no_bytes_whatever_raise_anything_else(body: bytes) -> None:
    with contextlib.suppress(ApiError):
        parse_json(body)


def test_an_unknown_field_is_named_as_unsupported() -> None:
    with pytest.raises(ApiError) as caught:
        parse_model(Example, b'{"number": 1, "colour": "red"}')
    assert caught.value.code is ErrorCode.UNSUPPORTED_PARAMETER
    assert caught.value.param == "colour"


@pytest.mark.parametrize(("body", "param"), [(b"{}", "number"), (b'{"number": "x"}', "number"), (b"[1]", None)])
def test_a_wrong_field_is_named_as_invalid(body: bytes, param: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        parse_model(Example, body)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert caught.value.param == param
