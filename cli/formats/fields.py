"""Fields that the public schemas share, read from a row: outcome, time, texts, style counts, language. Pure.

A row comes from JSON or from Parquet, so a time may be a number, a text or a datetime, and what is absent may be null.
Functions raise ValueError with the reason, KeyError for a field that must be there.
"""

import json
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
    """The field `winner`, in any of its spellings."""
    outcome = OUTCOMES.get(row["winner"])
    if outcome is None:
        raise ValueError(f"winner is {row['winner']!r}, not one of {', '.join(OUTCOMES)}")
    return outcome


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
    return float(value / 1000 if value > _MILLISECONDS_FROM else value)


def language_of(row: Row) -> str | None:
    """ISO 639-1 code of the field `language`, which may be a code or an English name; None if neither."""
    value = str(row.get("language") or "").strip().lower()
    return value if len(value) == 2 and value.isalpha() else _LANGUAGES.get(value)


def messages_of(value: Any) -> tuple[ChatMessage, ...]:
    """A conversation, as a list or as its JSON, whose messages are texts or lists of parts; pictures are left out."""
    if isinstance(value, str) and value.startswith("["):
        value = json.loads(value)
    if not isinstance(value, Sequence) or isinstance(value, str):
        return ()
    return tuple(ChatMessage(role=message["role"], content=_text_of(message.get("content"))) for message in value)


def conversations_of(row: Row) -> dict[str, tuple[ChatMessage, ...]] | None:
    """Both conversations; None unless the row has both."""
    a, b = (messages_of(row.get(f"conversation_{side}")) for side in "ab")
    return {"a": a, "b": b} if a and b else None


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
