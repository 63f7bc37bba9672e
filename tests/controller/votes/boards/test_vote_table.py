"""The columns of the log: what a vote leaves in them, and what judgements change."""

import pytest

from controller.votes.boards.board_view import fold_log
from controller.votes.boards.board_votes import contestant_names, offered_boards, rated_votes, scope_of
from controller.votes.boards.verdicts import UNKNOWN
from controller.votes.boards.vote_table import IDENTITIES, VoteTable, number_of
from tests.controller.votes.boards.votes import make_judgement, make_label, make_vote
from wire.judgements import Judgement
from wire.votes import StyleCounts, VotedSide, VoteRecord


def _rated(*entries: VoteRecord | Judgement, board: str = "overall") -> int:
    table = VoteTable()
    table.extend(entries)
    return rated_votes(board, table.snapshot()).num_votes


def test_a_judgement_concerns_votes_before_and_after_it() -> None:
    votes = [make_vote(number, "A", "B", "a", voter="v") for number in (1, 2, 9)]

    assert _rated(*votes[:2], make_judgement(3, "flag", voter="v"), votes[2]) == 0


def test_the_last_judgement_of_a_flag_decides() -> None:
    vote = make_vote(1, "A", "B", "a", voter="v")
    flag, unflag = make_judgement(2, "flag", voter="v"), make_judgement(3, "unflag", voter="v")

    assert _rated(vote, flag, unflag) == 1
    assert _rated(vote, unflag, flag) == 0


def test_an_unflag_about_one_subject_does_not_take_back_a_flag_about_another() -> None:
    vote = make_vote(1, "A", "B", "a", voter="v", cohort="c")
    flag = make_judgement(2, "flag", voter="v")

    assert _rated(vote, flag, make_judgement(3, "unflag", battle_ids=(vote.battle_id,))) == 0
    assert _rated(vote, flag, make_judgement(3, "unflag", cohort="c")) == 0
    assert _rated(vote, flag, make_judgement(3, "unflag", "voter_cap", voter="v")) == 0


def test_a_judgement_may_name_single_votes_or_a_cohort() -> None:
    votes = [make_vote(number, "A", "B", "a", cohort="c" if number > 2 else None) for number in range(1, 6)]

    assert _rated(*votes, make_judgement(9, "flag", "voter_cap", battle_ids=(votes[0].battle_id,))) == 4
    assert _rated(*votes, make_judgement(9, "flag", "anomalous_cohort", cohort="c")) == 2


def test_a_judgement_cannot_rate_a_vote_that_was_cast_with_a_flag() -> None:
    vote = make_vote(1, "A", "B", "a", voter="v", flags=("stopped",))

    assert _rated(vote, make_judgement(2, "unflag", "stopped", voter="v")) == 0


def test_a_snapshot_does_not_change() -> None:
    table = VoteTable()
    table.add([make_vote(number, "A", "B", "a", voter="v") for number in range(1, 4)])
    before = table.snapshot()
    table.add([make_vote(number, "A", "C", "b", voter="v") for number in range(4, 3000)])
    table.judge([make_judgement(5000, "flag", voter="v")])

    assert rated_votes("overall", before).num_votes == 3
    assert before.contestants == (("A", "r"), ("B", "r"))


def test_what_a_board_leaves_out_is_counted_by_flag() -> None:
    table = VoteTable()
    table.add(
        [
            make_vote(1, "A", "B", "a"),
            make_vote(2, "A", "B", "a", flags=("stopped", "too_quick")),
            make_vote(3, "A", "B", "a", flags=("named",)),
            make_vote(4, "A", "B", "tie", flags=("their own word",)),
            make_vote(5, "A", "A", "a"),
        ]
    )
    votes = table.snapshot()

    assert rated_votes("overall", votes).unrated == {
        "named": 1,
        "stopped": 1,
        "too_quick": 1,
        "same_model": 1,
        "other": 1,
    }
    assert rated_votes("decisive", votes).unrated == {"named": 1, "stopped": 1, "too_quick": 1, "same_model": 1}
    assert rated_votes("named", votes).unrated == {}


def test_categories_and_languages_are_boards_once_votes_have_them() -> None:
    table = VoteTable()
    for number in range(1, 121):
        kinds = ("code",) if number % 3 == 0 else ("maths", "code")
        table.add([make_vote(number, "A", "B", "a", categories=kinds, language="de" if number % 4 else "en")])
    votes = table.snapshot()
    counts = {board: rated_votes(board, votes).num_votes for board in ("code", "maths", "lang_de", "non_english")}

    assert counts == {"code": 120, "maths": 80, "lang_de": 90, "non_english": 90}
    assert {"code", "maths"} <= set(offered_boards(votes))
    assert scope_of("creative", votes) is None


def test_a_cohort_is_a_board_once_it_has_enough_votes() -> None:
    table = VoteTable()
    cohorts = ["staff"] * 100 + ["guests"] * 99
    table.add([make_vote(number, "A", "B", "a", cohort=cohort) for number, cohort in enumerate([*cohorts, None])])
    votes = table.snapshot()

    assert [board for board in offered_boards(votes) if board.startswith("cohort:")] == ["cohort:staff"]
    assert rated_votes("cohort:staff", votes).num_votes == 100


def test_the_last_label_of_a_vote_is_its_categories_whichever_came_first() -> None:
    table = VoteTable()
    first, second = (make_vote(number, "A", "B", "a", categories=("code",)) for number in (2, 5))
    table.extend([make_label(1, first.battle_id, "maths"), first])
    before = table.snapshot()
    table.extend([make_label(3, first.battle_id), make_label(4, second.battle_id, "creative"), second])
    table.extend([make_label(6, second.battle_id, "hard", "maths")])
    votes = table.snapshot()

    assert rated_votes("maths", before).num_votes == 1
    assert scope_of("code", before) is None
    assert {board: rated_votes(board, votes).num_votes for board in ("maths", "hard", "creative")} == {
        "maths": 1,
        "hard": 1,
        "creative": 0,
    }
    assert (votes.num_votes, votes.num_seen, votes.last_vote_id, votes.early_labels) == (2, 6, "6-0", ())


def test_an_import_without_style_is_known_as_such() -> None:
    """Defect 9: it counted as equal style."""
    table = VoteTable()
    side = VotedSide(model="A", revision="r", style=StyleCounts())
    other = VotedSide(model="B", revision="r", style=StyleCounts())
    table.add([make_vote(1, "A", "B", "a", a=side, b=other), make_vote(2, "A", "B", "a")])

    assert table.snapshot().columns["has_style"].tolist() == [False, True]


def test_the_newest_revision_bears_the_name_of_the_model() -> None:
    """Newest by the times of votes: an import of old votes does not take the name."""
    revisions = {100: "new" + "0" * 61, 1: "old" + "0" * 61, 101: "new" + "0" * 61}
    table = VoteTable()
    for time, revision in revisions.items():
        table.add([make_vote(time, "A", "B", "a", a=VotedSide(model="A", revision=revision))])

    assert contestant_names(table.snapshot()) == ("A", "B", "A@old00000")


@pytest.mark.parametrize("revisions", [("", "1"), ("12345678a", "12345678b", "12345678c")])
def test_contestants_have_different_names(revisions: tuple[str, ...]) -> None:
    table = VoteTable()
    for time, revision in enumerate(revisions):
        table.add([make_vote(time, "A", "B", "a", a=VotedSide(model="A", revision=revision))])

    names = contestant_names(table.snapshot())

    assert len(set(names)) == len(names) == len(revisions) + 1


def test_columns_of_a_vote() -> None:
    table = VoteTable()
    table.add([make_vote(7, "A", "B", "both_bad", probability=0.125, turns=3)])
    columns = table.snapshot().columns

    assert {name: columns[name][0] for name in ("time", "outcome", "turns", "probability", "voter")} == {
        "time": 7.0,
        "outcome": 3,
        "turns": 3,
        "probability": 0.125,
        "voter": -1,
    }
    assert columns["covariates"][0].tolist() == [(10 - 12) / (10 + 12), 0.0, 0.0, 0.0]


def test_a_table_knows_what_the_judge_asks() -> None:
    votes = fold_log(
        [
            make_vote(1, "A", "B", "a", voter="v", network="n", prompt="p", identity="invite"),
            make_vote(2, "A", "B", "a", vote_id="1700000000000-3"),
            make_vote(3, "A", "B", "a", vote_id=""),
        ]
    ).columns
    known = number_of("v"), number_of("n"), number_of("p"), IDENTITIES.index("invite")
    assert tuple(votes[name][0] for name in ("voter", "network", "prompt", "identity")) == known
    assert {int(votes[name][1]) for name in ("voter", "network", "prompt", "identity")} == {UNKNOWN}
    assert list(zip(votes["entry_ms"].tolist(), votes["entry_number"].tolist(), strict=True)) == [
        (1, 0),
        (1_700_000_000_000, 3),
        (0, 0),
    ]
