"""What the rules find in a log, and what they leave to an administrator."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from controller.votes.boards.board_view import fold_log
from controller.votes.boards.vote_table import TableSnapshot, number_of
from controller.votes.integrity.findings import Finding, Rules, integrity_view, judge_votes
from tests.controller.votes.integrity.crowds import honest_names, shuffled_log, vote
from tests.ratings.integrity_crowd import Cast, honest, omnipresent, strengths, target_only
from wire.judgements import Judgement
from wire.votes import VoteRecord

RULES = Rules(surprise_limit=1000.0, voter_cap=0, address_cap=0, prompt_cap=0, probation_votes=0)
RNG = np.random.default_rng(11)
TRUE = strengths(RNG)
HONEST = [honest(RNG, TRUE, 15) for _ in range(130)]
RIGGER = omnipresent(RNG, TRUE, 60, 3)
Log = list[VoteRecord | Judgement]


def _log(*more: tuple[Cast, dict[str, Any]]) -> Log:
    rng = np.random.default_rng(12)
    return [*shuffled_log(rng, [*HONEST, *(cast for cast, _ in more)], [*honest_names(HONEST), *(f for _, f in more)])]


RIGGED = _log((RIGGER, {"voter": "rigger"}))


def _found(log: Log, rules: Rules = RULES, since: int = 0) -> tuple[TableSnapshot, tuple[Finding, ...]]:
    votes = fold_log(log)
    return votes, judge_votes(votes, rules, since=since).findings


def _judgement(number: int, **changes: Any) -> Judgement:
    values = {"judgement_id": f"{number}-0", "key": f"judgement:{number}", "time": 0, "action": "flag", "by": "judge"}
    return Judgement.model_validate({**values, "flag": "anomalous_voter", **changes})


def test_a_rigger_is_found_and_no_honest_voter() -> None:
    votes, [finding] = _found(RIGGED)
    assert (finding.action, finding.flag, finding.is_about_voter, finding.number) == (
        "flag",
        "anomalous_voter",
        True,
        0,
    )
    assert set(votes.columns["voter"][finding.rows]) == {number_of("rigger")}
    assert finding.evidence["surprise"] > 1000
    assert finding.note == "contrary"


def test_a_round_that_is_stopped_judges_no_further_voter() -> None:
    rigger = number_of("rigger")
    votes = fold_log(RIGGED)
    before = int((np.unique(votes.columns["voter"]) < rigger).sum())  # voters that are judged first

    def found_after(num_voters: int) -> int:
        asked = iter([False] * num_voters)
        return len(judge_votes(votes, RULES, since=0, is_stopped=lambda: next(asked, True)).findings)

    assert (found_after(0), found_after(before), found_after(before + 1)) == (0, 0, 1)


def test_what_is_in_force_is_not_found_again_and_an_administrator_has_the_last_word() -> None:
    flagged = _judgement(9001, voter="rigger")
    assert _found([*RIGGED, flagged])[1] == ()
    assert [f.number for f in _found([*RIGGED, flagged, _judgement(9002, voter="rigger", action="unflag")])[1]] == [2]
    spared = _judgement(9002, voter="rigger", action="unflag", by="admin")
    assert _found([*RIGGED, flagged, spared])[1] == ()


def test_a_flag_is_taken_back_when_the_others_have_come_to_agree_unless_an_administrator_set_it() -> None:
    log = [*RIGGED, _judgement(9001, voter="rigger"), _judgement(9002, voter="honest-3")]
    _, [finding] = _found(log)
    assert (finding.action, finding.flag, finding.number) == ("unflag", "anomalous_voter", 1)
    assert _found([*log[:-1], _judgement(9002, voter="honest-3", by="admin")])[1] == ()


def test_only_voters_of_new_votes_are_judged() -> None:
    position = max(n for n, entry in enumerate(RIGGED) if isinstance(entry, VoteRecord) and entry.voter == "rigger")
    assert _found(RIGGED, since=position + 1)[1] == ()
    assert len(_found(RIGGED, since=position)[1]) == 1


def test_many_identities_of_one_cohort_or_one_network_are_found_together() -> None:
    rng = np.random.default_rng(4)
    clones = [target_only(rng, 5, 3) for _ in range(12)]
    cohort = [(cast, {"voter": f"clone-{n}", "cohort": "class"}) for n, cast in enumerate(clones)]
    _, [finding] = _found(_log(*cohort))
    assert (finding.flag, finding.cohort, len(finding.rows)) == ("anomalous_cohort", "class", 0)

    network = [(cast, {"voter": f"clone-{n}", "network": "net"}) for n, cast in enumerate(clones)]
    votes, [finding] = _found(_log(*network))
    assert (finding.flag, finding.cohort, len(finding.rows)) == ("anomalous_cohort", None, 60)
    assert set(votes.columns["network"][finding.rows]) == {number_of("net")}

    honest_class = [(cast, {"voter": f"pupil-{n}", "cohort": "class"}) for n, cast in enumerate(HONEST[:20])]
    assert _found(_log(*honest_class))[1] == ()


@pytest.mark.parametrize(
    ("flag", "rule", "field"),
    [
        ("voter_cap", "voter_cap", "voter"),
        ("address_cap", "address_cap", "network"),
        ("prompt_cap", "prompt_cap", "prompt"),
    ],
)
def test_votes_beyond_a_cap_are_found_once(flag: str, rule: str, field: str) -> None:
    rules = replace(RULES, **{rule: 3})
    day = 86_400.0
    log: Log = [vote(n, 0, 1, "a", time=day * (n // 10), **{field: "x"}) for n in range(1, 13)]
    log.append(vote(13, 0, 1, "a", time=day, **{field: "x"}, flags=("named",)))  # is not rated anyway
    _, [finding] = _found(log, rules)
    assert (finding.flag, finding.rows.tolist()) == (flag, [3, 4, 5, 6, 7, 8])
    named = tuple(f"battle-{row + 1}" for row in finding.rows.tolist())
    assert _found([*log, _judgement(99, flag=flag, battle_ids=named)], rules)[1] == ()
    back = [
        _judgement(98, flag=flag, battle_ids=named),
        _judgement(99, flag=flag, battle_ids=named, action="unflag", by="admin"),
    ]
    assert _found([*log, *back], rules)[1] == ()


def test_the_first_votes_of_an_invited_identity_count_when_it_has_enough() -> None:
    rules = replace(RULES, probation_votes=5)
    invited = [(HONEST[0], {"voter": "guest", "identity": "invite"})]
    log = _log(*invited)
    own = [n for n, entry in enumerate(log) if isinstance(entry, VoteRecord) and entry.voter == "guest"]

    _, [finding] = _found(log[: own[3] + 1], rules)
    assert (finding.action, finding.flag) == ("flag", "probation")
    begun: Log = [*log[: own[3] + 1], _judgement(9001, flag="probation", voter="guest")]
    assert _found(begun, rules)[1] == ()
    _, [finding] = _found([*begun, *log[own[3] + 1 :]], rules)
    assert (finding.action, finding.flag, finding.number) == ("unflag", "probation", 1)
    cookies = _log((HONEST[0], {"voter": "guest", "identity": "cookie"}))
    assert _found(cookies[: own[3] + 1], rules)[1] == ()


def test_a_rigger_does_not_pass_probation() -> None:
    rules = replace(RULES, probation_votes=10)
    log: Log = [
        *_log((RIGGER, {"voter": "rigger", "identity": "header"})),
        _judgement(9001, flag="probation", voter="rigger"),
    ]
    assert [finding.flag for finding in _found(log, rules)[1]] == ["anomalous_voter"]


def test_the_counts_say_why_votes_are_not_rated_and_name_no_voter() -> None:
    votes = fold_log([*RIGGED, _judgement(9001, voter="rigger")])
    view = integrity_view(votes, RULES, num_voters=131, judged_at=5.0)
    assert view.unrated == {"anomalous_voter": 60}
    assert (view.num_votes, view.num_rated, view.voters_flagged) == (len(RIGGED), len(RIGGED) - 60, 1)
    assert "rigger" not in view.model_dump_json()


def test_an_empty_log_and_one_of_ties_have_no_findings() -> None:
    assert _found([])[1] == ()
    assert _found([vote(n, 0, 1, "tie", voter="v") for n in range(1, 9)])[1] == ()
    assert Counter(finding.flag for finding in _found([vote(1, 0, 0, "a", voter="v")])[1]) == {}
