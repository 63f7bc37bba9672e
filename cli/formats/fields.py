"""Fields that the public schemas share, read from a row: outcome, time, texts, style counts, language. Pure.

A row comes from JSON or from Parquet, so a time may be a number, a text or a datetime, and what is absent may be null.
Functions raise ValueError with the reason, KeyError for a field that must be there.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from wire.battles import Outcome
from wire.chat import ChatMessage
from wire.votes import StyleCounts, VotedSide

Row = Mapping[str, Any]

REVISION = "imported"  #: no public schema has a field for the weights
OUTCOMES: dict[str, Outcome] = {
    "model_a": "a",
    "model_b": "b",
    "tie": "tie",
    "tie (bothbad)": "both_bad",
    "both_bad": "both_bad",
}
#: Columns of the data sets of Kaggle, of which one holds.
_WINNER_COLUMNS: dict[str, Outcome] = {"winner_model_a": "a", "winner_model_b": "b", "winner_tie": "tie"}

_MILLISECONDS_FROM = 1e11  #: as seconds this is the year 5138
#: Names of languages in the older data sets, as the language detector of FastChat spells them.
_LANGUAGES = {
    "arabic": "ar", "chinese": "zh", "czech": "cs", "danish": "da", "dutch": "nl", "english": "en", "finnish": "fi",
    "french": "fr", "german": "de", "greek": "el", "hebrew": "he", "hindi": "hi", "hungarian": "hu",
    "indonesian": "id", "italian": "it", "japanese": "ja", "korean": "ko", "norwegian": "no", "persian": "fa",
    "polish": "pl", "portuguese": "pt", "romanian": "ro", "russian": "ru", "spanish": "es", "swedish": "sv",
    "thai": "th", "turkish": "tr", "ukrainian": "uk", "vietnamese": "vi",
}  # fmt: skip


def outcome_of(row: Row) -> Outcome:
    """The field `winner`, in any of its spellings, or the one column of three that is true."""
    if "winner" not in row and "winner_model_a" in row:
        held = [outcome for column, outcome in _WINNER_COLUMNS.items() if str(row.get(column)).lower() in ("1", "true")]
        if len(held) != 1:
            raise ValueError(f"{len(held)} of {', '.join(_WINNER_COLUMNS)} are true, not one")
        return held[0]
    outcome = OUTCOMES.get(row["winner"])
    if outcome is None:
        raise ValueError(f"winner is {row['winner']!r}, not one of {', '.join(OUTCOMES)}")
    return outcome


def two_models(a: object, b: object) -> None:
    """Raises ValueError unless these are the names of two models."""
    if a == b:
        raise ValueError(f"both models are {a!r}")
    if not isinstance(a, str) or not isinstance(b, str) or not a or not b:
        raise ValueError(f"the models are {a!r} and {b!r}, which are not two names")


def is_missing(value: object) -> bool:
    """Whether a field is absent: null, empty, or the NaN that tables have in its place."""
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def key_of(*values: object) -> str:
    """An id for what has none: the same for the same values, in every run."""
    text = json.dumps(values, sort_keys=True, default=str, ensure_ascii=True)
    return "row-" + hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def category(value: object) -> str | None:
    """A name of a category as ours are written; None for what is no text or has no letter to begin with."""
    if not isinstance(value, str):
        return None
    name = re.sub(r"[^a-z0-9]+", "_", value.lower()).strip("_")[:40]
    return name if name[:1].isalpha() and name.isascii() else None


def side_of(row: Row, side: str) -> VotedSide:
    """Model of a side, with its style counts if the row has them in `conv_metadata`."""
    style = _style_counts(row.get("conv_metadata") or {}, side)
    return VotedSide(model=row[f"model_{side}"], revision=REVISION, style=style)


def unix_time(value: Any) -> float:
    """Seconds since 1970 of a number (of seconds or milliseconds), an ISO text or a datetime; without a zone: UTC."""
    if isinstance(value, str):
        value = _datetime_of(value)
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is no time")
    if not math.isfinite(value):
        raise ValueError(f"{value!r} is no time")
    return float(value / 1000 if value > _MILLISECONDS_FROM else value)


def language_of(row: Row) -> str | None:
    """ISO 639-1 code of the field `language`, or of the first of `languages`, which may be a code or an English name;
    None if neither."""
    stated = row.get("language") or next(iter(row.get("languages") or ()), "")
    value = str(stated).strip().lower()
    return value if len(value) == 2 and value.isalpha() else _LANGUAGES.get(value)


def messages_of(value: Any) -> tuple[ChatMessage, ...]:
    """A conversation, as a list or as its JSON, whose messages are texts or lists of parts; pictures are left out."""
    if isinstance(value, str) and value.startswith("["):
        value = json.loads(value)
    if not isinstance(value, Sequence) or isinstance(value, str):
        return ()
    return tuple(ChatMessage(role=message["role"], content=_text_of(message.get("content"))) for message in value)


def conversations_of(row: Row) -> dict[str, tuple[ChatMessage, ...]] | None:
    """Both conversations, as messages or as prompts with answers; None unless the row has both."""
    if "response_a" in row:
        a, b = (_exchanges(row.get("prompt"), row.get(f"response_{side}")) for side in "ab")
    else:
        a, b = (messages_of(row.get(f"conversation_{side}") or row.get(f"messages_{side}")) for side in "ab")
    return {"a": a, "b": b} if a and b else None


def _exchanges(prompts: Any, answers: Any) -> tuple[ChatMessage, ...]:
    """Turns of prompts and answers: texts, or the JSON of lists of texts, in which null is an empty text."""
    asked, answered = (_texts(value) for value in (prompts, answers))
    messages: list[ChatMessage] = []
    for prompt, answer in zip(asked, answered, strict=True):
        messages += [ChatMessage(role="user", content=prompt), ChatMessage(role="assistant", content=answer)]
    return tuple(messages)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str) and value.startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return [value]  # a text that begins with a bracket
    return [str(part or "") for part in value] if isinstance(value, list) else [str(value or "")]


def num_turns(row: Row, conversations: Mapping[str, Sequence[ChatMessage]] | None) -> int:
    """How many prompts: stated, or counted in the texts; else 1."""
    stated = row.get("turn") or (row.get("conv_metadata") or {}).get("turns")
    if stated:
        return int(stated)
    return max(1, sum(message.role == "user" for message in (conversations or {}).get("a", ())))


def _datetime_of(text: str) -> datetime | float:
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text.replace(" UTC", "+00:00"))


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else ()
    return "\n".join(part.get("text") or "" for part in parts if part.get("type", "text") == "text")


def _style_counts(metadata: Mapping[str, Any], side: str) -> StyleCounts:
    return StyleCounts(
        tokens=_total(metadata.get(f"sum_assistant_{side}_tokens")),
        headers=_total(metadata.get(f"header_count_{side}")),
        lists=_total(metadata.get(f"list_count_{side}")),
        bold=_total(metadata.get(f"bold_count_{side}")),
    )


def _total(count: Any) -> int:
    """A count, or the sum of counts by kind (h1, h2, ...), which newer data sets have."""
    return sum(_total(part) for part in count.values()) if isinstance(count, Mapping) else int(count or 0)
