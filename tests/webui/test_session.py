"""Transitions of a session."""

import json

import pytest

from webui import texts
from webui.answers import Interrupted, SideAnswer
from webui.battle.session import (
    Bookmark,
    Exchange,
    Session,
    from_storage,
    from_view,
    standings,
)
from wire.battles import (
    Answer,
    BattleView,
    DeltaEvent,
    FailedEvent,
    FinishedEvent,
    RestartedEvent,
    SideView,
    Turn,
    TurnFinishedEvent,
    WakingEvent,
)
from wire.errors import ErrorDetail
from wire.ids import BattleId
from wire.leaderboard import LeaderboardRow, LeaderboardView

ERROR = ErrorDetail(message="The model tawny-owl failed.", type="server_error", code="worker_failed")


def asked() -> Session:
    return Session(battle_id=BattleId("b1")).asking("Hello")


def test_deltas_grow_each_side_by_itself() -> None:
    session = asked().after([DeltaEvent(side="a", seq=0, text="Go"), DeltaEvent(side="a", seq=1, text="od")])
    assert session.exchanges[-1].a == SideAnswer("Good", "writing")
    assert session.exchanges[-1].b == SideAnswer("", "waiting")


def test_thoughts_grow_before_the_answer_and_a_side_that_thinks_is_waiting() -> None:
    thinking = [DeltaEvent(side="a", seq=0, text="", thoughts="h"), DeltaEvent(side="a", seq=1, text="", thoughts="m")]
    session = asked().after(thinking)
    assert session.exchanges[-1].a == SideAnswer("", "waiting", thoughts="hm")
    session = session.after([DeltaEvent(side="a", seq=2, text="Yes", thoughts="!")])
    assert session.exchanges[-1].a == SideAnswer("Yes", "writing", thoughts="hm!")
    session = session.after([DeltaEvent(side="a", seq=0, text="", thoughts="h")])
    assert session.exchanges[-1].a == SideAnswer("", "waiting", thoughts="h")


def test_a_stream_that_starts_again_replaces_what_was_there() -> None:
    session = asked().after([DeltaEvent(side="a", seq=0, text="Good"), DeltaEvent(side="a", seq=0, text="Good day")])
    assert session.exchanges[-1].a.text == "Good day"


def test_the_page_says_that_a_model_wakes_until_the_answers_begin_and_names_no_side() -> None:
    session = asked().after([WakingEvent()])
    assert session.notice == texts.WAKING
    assert {answer.status for answer in (session.exchanges[-1].a, session.exchanges[-1].b)} == {"waiting"}
    assert session.after([DeltaEvent(side="b", seq=0, text="x")]).notice is None


def test_a_restarted_side_forgets_its_text() -> None:
    session = asked().after([DeltaEvent(side="b", seq=0, text="x"), RestartedEvent(side="b")])
    assert session.exchanges[-1].b == SideAnswer()


def test_a_battle_is_votable_when_both_sides_are_answered_and_the_stream_has_ended() -> None:
    session = asked().after(
        [FinishedEvent(side="a", finish_reason="stop"), FinishedEvent(side="b", finish_reason="length")]
    )
    assert not session.is_votable
    session = session.after([TurnFinishedEvent(turn=1, state="answered")])
    assert session.is_votable
    assert session.exchanges[-1].b.is_cut


def test_the_other_side_of_a_failed_one_goes_on_and_ends_by_itself() -> None:
    events: list[DeltaEvent | FailedEvent] = [
        DeltaEvent(side="a", seq=0, text="Go"),
        FailedEvent(side="b", error=ERROR),
        DeltaEvent(side="a", seq=1, text="od"),
    ]
    session = asked().after(events)
    assert (session.exchanges[-1].a, session.exchanges[-1].b.status) == (SideAnswer("Good", "writing"), "failed")
    assert session.is_busy
    ended = session.after([FinishedEvent(side="a", finish_reason="stop"), TurnFinishedEvent(turn=1, state="answered")])
    assert (ended.exchanges[-1].a.status, ended.has_failed_turn, ended.has_answers) == ("finished", True, False)


def test_a_failed_turn_stays_and_can_be_asked_again() -> None:
    session = asked().after([FailedEvent(side="b", error=ERROR), TurnFinishedEvent(turn=1, state="answered")])
    assert not session.is_over
    assert session.has_failed_turn
    assert not session.has_answers, "there is nothing to vote on"
    assert session.exchanges[-1].a.status == "stopped"
    assert session.asking_again().pending == "regenerate"


def test_a_refused_turn_never_happened_and_its_prompt_goes_back() -> None:
    session = asked().after(
        [FailedEvent(side="b", error=ERROR), TurnFinishedEvent(turn=1, state="open", is_kept=False)]
    )
    assert session.exchanges == ()
    assert session.unsent_text == "Hello"
    assert not session.is_over


def test_a_view_gives_back_the_whole_battle() -> None:
    view = BattleView(
        id=BattleId("b1"),
        mode="anonymous",
        state="streaming",
        a=SideView(),
        b=SideView(),
        turns=(
            Turn(number=1, content="One", a=Answer(text="1", finish_reason="stop"), b=Answer(text="", error=ERROR)),
            Turn(number=2, content="Two", a=Answer(text="2"), b=Answer(text="")),
        ),
        max_turns=8,
    )
    session = from_view(view)
    assert session.names is None
    assert session.exchanges == (
        Exchange("One", SideAnswer("1", "finished"), SideAnswer("", "failed", "worker_failed")),
        Exchange("Two", SideAnswer("2", "writing"), SideAnswer("", "waiting")),
    )


def board(**ratings: float) -> LeaderboardView:
    rows = tuple(
        LeaderboardRow(
            model=name, rating=rating, lower=None, upper=None, rank=1, votes=1, wins=1, losses=0, ties=0, win_rate=1.0
        )
        for name, rating in ratings.items()
    )
    return LeaderboardView(board="overall", num_votes=1, last_vote_id="1", updated_at=0, rows=rows)


def test_standings_tell_what_a_vote_did_to_both_ratings() -> None:
    found = standings(("owl", "fox"), board(owl=1000), board(owl=1012.5, fox=990))
    assert found["a"].change == 12.5
    assert found["b"].is_new
    assert standings(("owl", "fox"), None, board(owl=1012.5))["a"].change is None


def test_an_interruption_lasts_until_the_next_event() -> None:
    session = Session(battle_id=BattleId("b1")).asking("Hello!").after([Interrupted()])
    assert session.is_interrupted
    assert session.exchanges == (Exchange("Hello!"),)
    assert not session.after([DeltaEvent(side="a", seq=0, text="x")]).is_interrupted
    assert not session.ended("Lost.").is_interrupted


@pytest.mark.parametrize(
    "stored", [None, 7, "../x", "a/b", "", "x" * 65, [], ["b1"], ["b1", 2, 3], ["b1", "asked", "1"], {"id": "b1"}]
)
def test_a_bookmark_that_the_page_did_not_make_is_none(stored: object) -> None:
    assert from_storage(stored) == Bookmark()


@pytest.mark.parametrize(
    "bookmark",
    [Bookmark(), Bookmark(BattleId("b-1_X")), Bookmark(BattleId("b1"), "Hello!", 2), Bookmark(None, "Hi", 1)],
)
def test_a_bookmark_survives_the_storage(bookmark: Bookmark) -> None:
    assert from_storage(json.loads(json.dumps(bookmark.to_storage()))) == bookmark


def test_a_view_without_reasons_still_tells_those_that_it_shows() -> None:
    view = BattleView(id=BattleId("b1"), mode="anonymous", state="voted", a=SideView(), b=SideView(), max_turns=8)
    assert from_view(view).is_rated
    assert from_view(view.model_copy(update={"mode": "named"})).flags == ("named",)
    assert from_view(view.model_copy(update={"identity_revealed": True})).flags == ("identity_revealed",)
    assert from_view(view.model_copy(update={"flags": ("too_quick",)})).flags == ("too_quick",)
