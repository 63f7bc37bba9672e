"""JSON schemas in words."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field, TypeAdapter

from service_kit.schema_text import bounds_text, fields, type_text


class Inner(BaseModel):
    pass


class Example(BaseModel):
    needed: str
    count: int | None = Field(default=None, ge=1, lt=9, description="how many")
    kind: Literal["x", "y"] = "x"
    pair: tuple[int, str] = (1, "a")
    inner: Inner | None = None
    by_name: dict[str, list[int]] = Field(default={}, max_length=3)


def test_fields_have_type_default_bounds_and_meaning() -> None:
    rows = [(row.name, row.type, row.default, row.bounds, row.meaning) for row in fields(Example.model_json_schema())]
    assert rows == [
        ("needed", "string", None, "", ""),
        ("count", "integer or null", "null", "1 or more, below 9", "how many"),
        ("kind", '"x" or "y"', '"x"', "", ""),
        ("pair", "[integer, string]", '[1, "a"]', "", ""),
        ("inner", "Inner or null", "null", "", ""),
        ("by_name", "object of list of integer", "{}", "3 entries or less", ""),
    ]


def test_a_list_of_alternatives_has_brackets() -> None:
    assert type_text(TypeAdapter(list[int | str]).json_schema()) == "list of (integer or string)"


def test_lengths_and_patterns_are_bounds() -> None:
    schema = TypeAdapter(Annotated[str, Field(min_length=1, max_length=3, pattern="^a")]).json_schema()
    assert bounds_text(schema) == "1 characters or more, 3 characters or less, matches ^a"


def test_a_schema_that_allows_anything_says_so() -> None:
    assert type_text({}) == "any"
