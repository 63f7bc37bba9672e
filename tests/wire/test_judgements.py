"""Judgements as lines of an exported log."""

import pytest
from pydantic import ValidationError

from tests.wire.test_votes import _record
from wire.judgements import Judgement
from wire.log_records import parse_log_line
from wire.votes import VoteRecord


def _judgement(**changes: object) -> Judgement:
    fields: dict[str, object] = {
        "judgement_id": "2-0",
        "key": "judgement:k",
        "time": 2.5,
        "action": "flag",
        "flag": "anomalous_voter",
        "voter": "v",
        "by": "judge",
    }
    return Judgement.model_validate({**fields, **changes})


@pytest.mark.parametrize("entry", [_record(comment="kind"), _judgement(evidence={"surprise": 30.5})], ids=["vote", "j"])
def test_each_line_of_an_export_is_what_it_was(entry: VoteRecord | Judgement) -> None:
    assert parse_log_line(entry.model_dump_json(exclude_none=True)) == entry


@pytest.mark.parametrize(
    "subject", [{"cohort": "c"}, {"battle_ids": ("b",)}, {"voter": None}], ids=["cohort too", "battles too", "none"]
)
def test_a_judgement_has_one_subject(subject: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="one of voter, cohort, battle_ids"):
        _judgement(**subject)


def test_votes_and_judgements_have_different_keys() -> None:
    with pytest.raises(ValidationError, match="key"):
        _judgement(key="b1")
    with pytest.raises(ValidationError, match="does not begin with any of judgement:"):
        _record(battle_id="judgement:k")
