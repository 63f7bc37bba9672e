"""Vote records as JSON lines."""

from wire.votes import StyleCounts, VotedSide, VoteRecord


def _record(**changes: object) -> VoteRecord:
    side = VotedSide(model="m", revision="r", style=StyleCounts(tokens=3))
    fields: dict[str, object] = {
        "vote_id": "1-0",
        "battle_id": "b",
        "time": 1.5,
        "mode": "anonymous",
        "outcome": "tie",
        "a": side,
        "b": side.model_copy(update={"model": "n"}),
    }
    return VoteRecord.model_validate({**fields, **changes})


def test_a_record_survives_the_way_through_json() -> None:
    record = _record(reasons=("clear",), comment="good", flags=("named",))

    assert VoteRecord.model_validate_json(record.model_dump_json()) == record


def test_the_schema_version_travels_under_its_short_name() -> None:
    assert _record().model_dump(mode="json")["schema"] == 2


def test_a_flag_keeps_a_vote_out_of_the_ratings() -> None:
    assert _record().is_rated
    assert not _record(flags=("identity_revealed",)).is_rated
