"""Finds names of models and makers in a text, with other spellings and versions of them.

"GPT-4" is found as "gpt4" and "GPT 4o", a registered "acme/Raven-30m" as "raven" and "Raven 30M". Letters of longer
names may be digits that look like them ("Cl4ude"). Knows no sentence: whether a name is claimed is decided elsewhere.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from controller.battles.revealing.spelling import fold

_TWINS = {"a": "a4@", "e": "e3", "i": "i1l!", "l": "l1i", "o": "o0", "s": "s5"}
_MIN_TWINNED = 4  #: shorter names are matched letter by letter
_MIN_BASE = 3  #: letters that the name of a family has at least
#: Registered names, or parts of them, that say nothing of the model.
_COMMON = frozenset(
    {"ai", "assistant", "base", "bot", "chat", "code", "demo", "echo", "fake", "fast", "hidden", "instruct", "large"}
    | {"local", "main", "mini", "model", "models", "new", "old", "org", "slow", "small", "test", "the", "tiny", "user"}
)
_VERSION = r"(?:[\s._:-]{0,2}v?\d+(?:\.\d+)*[a-z]{0,3})?"
CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"  #: a class of letters: scripts without blanks, and Hangul


@dataclass(frozen=True)
class FoundName:
    """A name in a text, from `start` to `end`. A weak one is also a word or a name of people; a maker made models."""

    start: int
    end: int
    is_weak: bool
    is_maker: bool


class Names:
    """The names that count in an arena with the registered `models`."""

    def __init__(self, models: Iterable[str]) -> None:
        known = read_table("names.json")
        strong, weak, makers = (set(known[kind]) for kind in ("strong", "weak", "makers"))
        for model in models:
            name = _key(model.rsplit("/", 1)[-1])
            base = _base(name)
            (weak if name == base else strong).add(name)
            if len(base) >= _MIN_BASE and base not in _COMMON:
                weak.add(base)
            if "/" in model and (maker := _publisher(model)):
                makers.add(maker)
        weak -= strong | _COMMON
        self._patterns = (
            (_pattern(strong), False, False),
            (_pattern(weak), True, False),
            (_pattern(makers), False, True),
            (_other_scripts(known["other_scripts"]), False, False),
        )

    def find(self, text: str) -> list[FoundName]:
        """All names in a text that `spelling.plain` has made; several may lie over each other."""
        return [
            FoundName(hit.start(), hit.end(), is_weak, is_maker)
            for pattern, is_weak, is_maker in self._patterns
            for hit in pattern.finditer(text)
        ]


@cache
def read_table(file: str) -> dict[str, list[str]]:
    """A table beside this module, its entries folded as texts are."""
    table = json.loads((Path(__file__).parent / file).read_text(encoding="utf-8"))
    return {key: [fold(entry) for entry in entries] for key, entries in table.items()}


def _key(name: str) -> str:
    return " ".join(re.findall(r"[a-z]+|\d+|[^\W\d_]+", fold(name).lower()))


def _base(name: str) -> str:
    """The name without all that follows its first number."""
    return re.split(r"\s?\d", name, maxsplit=1)[0].strip() or name


def _publisher(model: str) -> str | None:
    words = [word for word in _key(model.split("/", 1)[0]).split() if word not in _COMMON]
    publisher = " ".join(words)
    return publisher if len(publisher) >= _MIN_BASE else None


def _pattern(names: Iterable[str]) -> re.Pattern[str]:
    """All names, by their first sign: so few are tried at each place."""
    by_first: dict[str, set[str]] = defaultdict(set)
    for name in names:
        signs = _signs(name)
        if signs:
            by_first[signs[0]].add("".join(signs[1:]))
    firsts = "".join(sorted({re.escape(sign) for first in by_first for sign in first.strip("[]")}))
    groups = "|".join(
        f"{first}(?:{'|'.join(sorted(rests, key=lambda rest: (-len(rest), rest)))})"
        for first, rests in sorted(by_first.items())
    )
    return re.compile(rf"(?<![a-z0-9])(?=[{firsts}])(?:{groups}){_VERSION}(?![a-z0-9])", re.IGNORECASE)


def _signs(name: str) -> list[str]:
    """A pattern for each letter; between the parts of a name any blank, dash or dot, or none."""
    parts = _key(name).split()
    is_twinned = sum(map(len, parts)) >= _MIN_TWINNED
    signs: list[str] = []
    for part in parts:
        gap = r"[\s._-]{0,2}" if signs else ""
        for sign in part:
            twins = _TWINS.get(sign) if is_twinned else None
            signs.append(gap + (f"[{twins}]" if twins else re.escape(sign)))
            gap = ""
    return signs


def _other_scripts(names: Iterable[str]) -> re.Pattern[str]:
    """Names in scripts without upper case or blanks; CJK words have no borders."""
    words = sorted(set(names), key=lambda name: (-len(name), name))
    bordered = "|".join(re.escape(name) for name in words if not re.match(f"[{CJK}]", name))
    free = "|".join(re.escape(name) for name in words if re.match(f"[{CJK}]", name))
    return re.compile(rf"(?<!\w)(?:{bordered})(?!\w)|(?:{free})", re.IGNORECASE)
