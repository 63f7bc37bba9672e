"""Ids as types: a text either is an id or makes none."""

import pytest
from pydantic import BaseModel, ValidationError

from wire.ids import BattleId, WorkerId

HOSTILE = (
    "",
    " ",
    "a b",
    "a:events",
    "x:battle:y",
    "../votes",
    "a/vote",
    "a%2fvote",
    "a?b",
    "a#b",
    "a\n",
    "a\0",
    "*",
    "\ud800",
    "\u0661",
    "a" * 65,
)


class Holder(BaseModel):
    id: BattleId


@pytest.mark.parametrize("kind", [BattleId, WorkerId])
@pytest.mark.parametrize("text", ["a", "w-0123456789ab", "Tq3-_x" * 3, "a" * 64])
def test_a_word_is_an_id(kind: type[BattleId], text: str) -> None:
    assert kind(text) == kind.parse(text) == text


@pytest.mark.parametrize("kind", [BattleId, WorkerId])
@pytest.mark.parametrize("text", HOSTILE)
def test_what_could_leave_its_place_in_a_key_or_a_path_is_no_id(kind: type[BattleId], text: str) -> None:
    assert kind.parse(text) is None
    with pytest.raises(ValueError, match="an id has"):
        kind(text)


@pytest.mark.parametrize("value", [None, 3, ["a"], {"a": 1}, b"a"])
def test_a_value_of_another_type_is_no_id(value: object) -> None:
    assert BattleId.parse(value) is None


def test_a_field_of_a_wire_model_holds_a_checked_id() -> None:
    assert type(Holder.model_validate_json('{"id": "abc"}').id) is BattleId
    with pytest.raises(ValidationError):
        Holder.model_validate_json('{"id": "a:events"}')
