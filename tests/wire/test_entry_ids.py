"""Ids of log entries: which texts are ids, and their order."""

import pytest

from wire.entry_ids import LOG_START, EntryId, entry_order


@pytest.mark.parametrize("text", [LOG_START, "1-0", "12-345", "1730000000000-7"])
def test_ids_that_services_give_out_are_accepted(text: str) -> None:
    assert EntryId(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "1",
        "1-",
        "-1",
        "1-2-3",
        "a-1",
        "1-b",
        " 1-2",
        "1-2\n",
        "\u0661-1",
        "1" * 23 + "-1",
        f"{2**64}-1",
        f"1-{2**63}",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="an entry id"):
        EntryId(text)


def test_ids_are_ordered_by_number_and_not_by_character() -> None:
    ids = ["10-0", "9-11", "9-2", LOG_START]
    assert sorted(ids, key=entry_order) == [LOG_START, "9-2", "9-11", "10-0"]
