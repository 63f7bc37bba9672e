"""The naive twin of constrained decoding: at each step every token of the vocabulary is tried, likeliest first."""

import json
import math
import re
from collections.abc import Callable, Sequence
from functools import cache

from engine.sampling_params import Constraint
from tests.engine.checkpoints import TinyModel

#: Whether a text is the beginning of a valid one, and whether it is a valid one.
Judge = Callable[[bytes], tuple[bool, bool]]


def choices(*texts: str) -> Judge:
    encoded = [text.encode() for text in texts]
    return lambda text: (any(choice.startswith(text) for choice in encoded), text in encoded)


def numbers(text: bytes) -> tuple[bool, bool]:
    """[0-9]{3}-[a-c]+x"""
    digits, dash, rest = text.partition(b"-")
    is_short = re.fullmatch(rb"[0-9]{0,3}", digits) is not None
    if not dash:
        return is_short, False
    return is_short and len(digits) == 3 and re.fullmatch(rb"[a-c]*|[a-c]+x", rest) is not None, rest.endswith(b"x")


def _pairs() -> list[bytes]:
    return [
        json.dumps({"a": a, "b": [b, c]}, separators=(",", ":")).encode()
        for a in (-1, True, "xy")
        for b in (True, False)
        for c in (True, False)
    ]


def pair_rest(text: bytes) -> float:
    """Bytes that a beginning of a `pair` lacks at least."""
    squeezed = re.sub(rb" |\n[ \t]{0,20}", b"", text)
    return min((len(whole) - len(squeezed) for whole in _pairs() if whole.startswith(squeezed)), default=math.inf)


def pair(text: bytes) -> tuple[bool, bool]:
    """{"a": one of -1, true, "xy", "b": an array of two booleans}, without blanks that the caller forbids."""
    wholes = _pairs()
    # One space, or a line break and blanks, may stand between two tokens of JSON; none is inside a string here.
    squeezed = re.sub(rb" |\n[ \t]{0,20}", b"", text)
    return any(_fits(text, whole) for whole in wholes), squeezed in wholes and not text[-1:].isspace()


def _fits(text: bytes, whole: bytes) -> bool:
    """Whether text is a beginning of `whole` with blanks between its tokens."""
    return _beginnings(whole).fullmatch(text) is not None


@cache
def _beginnings(whole: bytes) -> re.Pattern[bytes]:
    tokens = re.findall(rb'"[^"]*"|[\[\]{}:,]|[^\[\]{}:,]+', whole)
    blank = rb"(?: |\n[ \t]{0,20})?"
    pattern = b""
    for token in reversed(tokens[1:]):
        pattern = rb"(?:" + blank + rb"(?:" + _prefixes(token, pattern) + rb"))?"
    return re.compile(_prefixes(tokens[0], pattern))


def _prefixes(token: bytes, rest: bytes) -> bytes:
    """A beginning of the token, or the whole token and the rest."""
    beginnings = [re.escape(token[:length]) for length in range(len(token))]
    return b"|".join([re.escape(token) + rest, *reversed(beginnings)])


PAIR = json.dumps(
    {
        "type": "object",
        "properties": {
            "a": {"enum": [-1, True, "xy"]},
            "b": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2},
        },
        "required": ["a", "b"],
        "additionalProperties": False,
    }
)
CASES: Sequence[tuple[Constraint, Judge]] = [
    (Constraint("choice", '["yes", "yesterday", "no", "zürich"]'), choices("yes", "yesterday", "no", "zürich")),
    (Constraint("regex", "[0-9]{3}-[a-c]+x"), numbers),
    (Constraint("json_schema", PAIR, closes=False), pair),
    (Constraint("grammar", 'start: "<" WORD ">" | "<>"\nWORD: "ab" | "ba"'), choices("<>", "<ab>", "<ba>")),
    (Constraint("grammar", 'root ::= "a" ("b" | "c")'), choices("ab", "ac")),
]


def greedy(
    model: TinyModel, prompt: list[int], judge: Judge, pieces: Sequence[bytes], stop_id: int, most: int
) -> list[int]:
    """The tokens of the greedy continuation, the token that ends it included."""
    output: list[int] = []
    text = b""
    while len(output) < most:
        is_whole = judge(text)[1]
        fitting = {i for i, piece in enumerate(pieces) if piece and judge(text + piece)[0]}
        if is_whole:
            if not fitting:
                break
            fitting.add(stop_id)
        ranked = model.logits(prompt + output)[-1].argsort(descending=True).tolist()
        token = next(token for token in ranked if token in fitting)
        output.append(token)
        if token == stop_id:
            break
        text += pieces[token]
    return output
