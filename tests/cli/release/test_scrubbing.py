"""Personal data is taken out of texts, and other texts stay as they are."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from cli.errors import CliError
from cli.release.scrubbing import Finding, Scrubber, presidio_finder

PLANTED = [
    (kind, item, text)
    for kind, item, text in map(
        json.loads, (Path(__file__).parent / "planted.jsonl").read_text(encoding="utf-8").splitlines()
    )
]


def scrubbed(text: str) -> str:
    return Scrubber().scrub_all([text])[0]


def test_at_least_95_percent_of_200_planted_items_are_removed() -> None:
    assert len(PLANTED) == 200
    assert all(item in text for _, item, text in PLANTED)
    left = [(kind, item) for kind, item, text in PLANTED if item in scrubbed(text)]
    print(f"{len(left)} of {len(PLANTED)} items are left: {left}")
    assert len(left) <= 10
    words = [(item, word) for _, item, text in PLANTED for word in item.split() if len(word) > 4]
    assert sum(word in scrubbed(text) for _, item, text in PLANTED for word in item.split() if len(word) > 4) <= 10, (
        words
    )


@pytest.mark.parametrize(
    "text",
    [
        "The year 2024 had 366 days; pi is 3.14159265.",
        "def f(x): return x[1:2] + 10**5",
        "The password must be reset. What is the best password manager?",
        "Use std::vector<int> a; a::b::c",
        "Call me at your convenience.",
        "On 2019-12-31 the report said 1,234,567.89 dollars.",
        "ISBN 978-3-16-148410-0, ratio 16:9, time 12:30:45",
        "class A:\n    @property\n    def x(self): ...",
        "http://localhost:8080 and 127.0.0.1",
        "The product of 123456789 and 987654321",
        "Dear Sir or Madam,",
        "Hi everyone, welcome",
        "0.1 + 0.2 = 0.30000000000000004",
        "The inn at the lake; a pan of 4 eggs; case 12 of the list",
        "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16",
        "x = a @ b.T",
        "margin: 10px 20px 30px 40px;",
        "She was born in Paris. My friend is tired.",
        "10 Best Ways to cook",
        "100000000000000000 is big",
        "\u6211\u53eb\u4f60\u4e0d\u8981\u8fd9\u6837\u505a\u4e86\u771f\u7684",
    ],
    ids=lambda text: ascii(text)[:40],
)
def test_a_text_without_personal_data_stays_as_it_is(text: str) -> None:
    assert scrubbed(text) == text


def test_equal_items_of_a_conversation_get_equal_numbers_and_names_are_removed_everywhere() -> None:
    scrubber = Scrubber()
    texts = ["My name is Anna Schmidt, mail a@b.org or c@d.org.", "Dear Anna, I wrote to C@D.org.\nAnna Schmidt"]
    assert scrubber.scrub_all(texts) == [
        "My name is [PERSON_1], mail [EMAIL_1] or [EMAIL_2].",
        "Dear [PERSON_2], I wrote to [EMAIL_2].\n[PERSON_1]",
    ]
    assert scrubber.num_removed == {"PERSON": 3, "EMAIL": 3}
    assert scrubber.scrub_all(["c@d.org"]) == ["[EMAIL_1]"]


def test_another_finder_adds_to_the_rules() -> None:
    def find(text: str) -> list[Finding]:
        start = text.find("Greta")
        return [Finding("PERSON", start, start + 5)] if start >= 0 else []

    assert Scrubber([find]).scrub_all(["I told Greta", "and Greta knows"]) == [
        "I told [PERSON_1]",
        "and [PERSON_1] knows",
    ]


def test_presidio_is_asked_if_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    class AnalyzerEngine:
        def analyze(self, text: str, language: str, score_threshold: float) -> list[SimpleNamespace]:
            assert (language, score_threshold) == ("en", 0.5)
            found = [("PERSON", 7, 12), ("DATE_TIME", 13, 18), ("US_PASSPORT", 0, 6)]
            return [SimpleNamespace(entity_type=kind, start=start, end=end) for kind, start, end in found]

    module = ModuleType("presidio_analyzer")
    module.AnalyzerEngine = AnalyzerEngine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "presidio_analyzer", module)
    assert presidio_finder()("I told Greta today") == [Finding("PERSON", 7, 12), Finding("NATIONAL_ID", 0, 6)]
    monkeypatch.setitem(sys.modules, "presidio_analyzer", None)
    with pytest.raises(CliError, match="Presidio cannot start"):
        presidio_finder()
