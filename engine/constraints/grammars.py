"""From a constraint to a grammar of llguidance, as text.

Blanks in JSON are bounded, since a model may otherwise write them without end: between two tokens of JSON one space, or
one line break and at most WHITESPACE_COLUMNS blanks, enough to indent ten levels.

llguidance is told not to force tokens: where a grammar forces bytes, it would allow only the token with which the
tokenizer begins them, and it would call the tokenizer for that while it computes a mask.
"""

import json
from typing import Any

from llguidance import LLMatcher
from llguidance.gbnf_to_lark import any_to_lark

from engine.constraints.schema_check import check_size, read_choices, read_schema, refuse
from engine.sampling_params import Constraint

WHITESPACE_COLUMNS = 20

_EXACT = '%llguidance {"no_forcing": true}\n'

_OPTIONS = {
    "whitespace_flexible": True,
    "whitespace_pattern": rf"( |\n[ \t]{{0,{WHITESPACE_COLUMNS}}})",
    "item_separator": ",",
    "key_separator": ":",
    "coerce_one_of": False,
    "lenient": False,
}


def grammar_of(constraint: Constraint) -> str:
    """The grammar in llguidance's own format. Raises InvalidRequest; compiling may refuse it, too."""
    match constraint.kind:
        case "json_schema":
            return _of_schema(read_schema(constraint.value))
        case "json_object":
            return _of_schema({"type": "object"})
        case "choice":
            choices = read_choices(constraint.value)
            return _of_lark("start: " + " | ".join(map(json.dumps, choices)))
        case "regex":
            check_size(constraint.value)
            return _of_lark(json.loads(LLMatcher.grammar_from_regex(constraint.value))["grammars"][0]["lark_grammar"])
        case "grammar":
            check_size(constraint.value)
            try:
                lark = any_to_lark(constraint.value)
            except Exception as error:  # the converter of GBNF has no error class of its own
                raise refuse(f"the grammar cannot be read: {error}") from None
            return _of_lark(lark)


def _of_lark(lark: str) -> str:
    return LLMatcher.grammar_from_lark(_EXACT + lark)


def _of_schema(schema: dict[str, Any] | bool) -> str:
    if schema is False:
        raise refuse("no JSON matches this schema")
    named = {} if schema is True else schema
    return _of_lark("start: %json " + json.dumps({**named, "x-guidance": _OPTIONS}))
