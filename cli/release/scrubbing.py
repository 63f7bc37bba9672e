"""Takes personal data out of texts: each item becomes its kind and a number, "[EMAIL_1]", one for a conversation.

The rules of pii_rules.py always run; Microsoft Presidio, where it is installed and asked for, finds names and places
that no rule announces. Neither finds everything: docs/release.md says how much of planted data is left.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cli.errors import CliError
from cli.release.pii_rules import RULES

_PERSON = "PERSON"
_MIN_NAME = 3  #: letters of a part of a name that is removed wherever it stands


@dataclass(frozen=True)
class Finding:
    """Personal data in a text, from `start` to `end`."""

    kind: str
    start: int
    end: int


Finder = Callable[[str], list[Finding]]


class Scrubber:
    """Scrubs texts with several finders, and counts what was removed. Not thread-safe."""

    def __init__(self, more: Iterable[Finder] = ()) -> None:
        self._finders: tuple[Finder, ...] = (find_by_rules, *more)
        self.num_removed: Counter[str] = Counter()

    def scrub_all(self, texts: Iterable[str]) -> list[str]:
        """The texts of one conversation; equal data gets the same number in all of them. A name that was found once is
        removed wherever it stands."""
        found = [(text, [finding for finder in self._finders for finding in finder(text)]) for text in texts]
        people = {text[one.start : one.end] for text, findings in found for one in findings if one.kind == _PERSON}
        numbers: dict[tuple[str, str], int] = {}
        last: Counter[str] = Counter()
        return [self._scrub(text, findings + _mentions(text, people), numbers, last) for text, findings in found]

    def _scrub(self, text: str, found: list[Finding], numbers: dict[tuple[str, str], int], last: Counter[str]) -> str:
        findings = _without_overlaps(found)
        parts, end = [], 0
        for finding in findings:
            item = (finding.kind, text[finding.start : finding.end].casefold())
            if item not in numbers:
                last[finding.kind] += 1
                numbers[item] = last[finding.kind]
            parts += [text[end : finding.start], f"[{finding.kind}_{numbers[item]}]"]
            end = finding.end
            self.num_removed[finding.kind] += 1
        return "".join(parts) + text[end:]


def find_by_rules(text: str) -> list[Finding]:
    """What the rules find, in their order; several findings may lie over each other."""
    findings = []
    for rule in RULES:
        for hit in rule.pattern.finditer(text):
            group = "data" if "data" in rule.pattern.groupindex else 0
            if rule.is_valid(hit.group(group)):
                findings.append(Finding(rule.kind, *hit.span(group)))
    return findings


def _mentions(text: str, people: Iterable[str]) -> list[Finding]:
    """Where names, or parts of them, stand once more."""
    words = {word for name in people for word in (name, *name.split()) if len(word) >= _MIN_NAME and word[0].isupper()}
    if not words:
        return []
    longest_first = sorted(map(re.escape, words), key=lambda word: (-len(word), word))
    pattern = re.compile(rf"(?<!\w)(?:{'|'.join(longest_first)})(?!\w)")
    return [Finding(_PERSON, *hit.span()) for hit in pattern.finditer(text)]


_KINDS = {
    "PERSON": "PERSON",
    "EMAIL_ADDRESS": "EMAIL",
    "PHONE_NUMBER": "PHONE",
    "CREDIT_CARD": "CARD",
    "IBAN_CODE": "IBAN",
    "IP_ADDRESS": "ADDRESS_IP",
    "CRYPTO": "WALLET",
    "LOCATION": "PLACE",
}


def presidio_finder(language: str = "en") -> Finder:
    """A finder by Presidio's analyzer. Raises CliError if the extra `presidio`, or the model that it needs, is not
    installed."""
    try:
        from presidio_analyzer import AnalyzerEngine

        engine = AnalyzerEngine()
    except (ImportError, OSError, SystemExit) as error:
        raise CliError(
            f"Presidio cannot start ({error}); `pip install 'agon[presidio]'` and `python -m spacy download"
            " en_core_web_lg` have what it needs."
        ) from None

    def find(text: str) -> list[Finding]:
        results = engine.analyze(text=text, language=language, score_threshold=0.5)
        return [
            Finding(_KINDS.get(result.entity_type, "NATIONAL_ID"), result.start, result.end)
            for result in results
            if result.entity_type not in ("DATE_TIME", "URL", "NRP")
        ]

    return find


def _without_overlaps(findings: Iterable[Finding]) -> list[Finding]:
    """Findings in the order of the text; where some lie over each other, what the first finder found."""
    kept: list[Finding] = []
    for finding in findings:
        if finding.start < finding.end and all(
            finding.end <= other.start or other.end <= finding.start for other in kept
        ):
            kept.append(finding)
    return sorted(kept, key=lambda finding: finding.start)
