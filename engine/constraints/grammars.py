"""From a constraint to its grammar, compiled by llguidance. Imported when the first constraint is compiled.

Blanks in JSON are bounded, since a model may otherwise write them without end: between two tokens of JSON one space, or
one line break and at most WHITESPACE_COLUMNS blanks, enough to indent ten levels.

llguidance is told not to force tokens: where a grammar forces bytes, it would allow only the token with which the
tokenizer begins them, and it would call the tokenizer for that while it computes a mask.
"""

import json
import re
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLParserLimits
from llguidance.gbnf_to_lark import any_to_lark
from llguidance.numpy import fill_next_token_bitmask

from engine.constraints.schema_check import check_size, read_choices, read_schema, refuse
from engine.constraints.vocabulary import Vocabulary
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


_MAX_MESSAGE = 200
_WHERE = re.compile(r"(at \d+\(\d+\)|failed to compile JSON schema|[Ee]rror): *")

#: For the worst constraint half a second to compile, 20 ms for a mask, and 100 MB of states.
LIMITS = LLParserLimits(
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=200_000,
    step_max_items=50_000,
    max_lexer_states=50_000,
    max_grammar_size=100_000,
    verbose_errors=False,
)


def compiled(constraint: Constraint, vocabulary: Vocabulary) -> tuple[LLMatcher, str]:
    """The constraint's matcher, at the beginning of a text, and its grammar. Raises InvalidRequest for a constraint
    that cannot be served."""
    grammar = _grammar_of(constraint)
    matcher = LLMatcher(vocabulary.tokenizer, grammar, log_level=0, limits=LIMITS)
    if not matcher.is_error():
        allowed = np.zeros((1, vocabulary.num_words), np.int32)
        first = matcher.deep_copy()
        fill_next_token_bitmask(first, allowed)
        if not vocabulary.of_step(allowed).any() and not first.is_error():
            raise refuse("it allows no text but the empty one")
    if matcher.is_error():
        # One sentence, without the grammar that llguidance repeats behind it.
        raise refuse(_WHERE.sub("", matcher.get_error().strip().split("\n", 1)[0])[:_MAX_MESSAGE])
    return matcher, grammar


def _grammar_of(constraint: Constraint) -> str:
    """In llguidance's own format, as text. Raises InvalidRequest; compiling may refuse it, too."""
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
