"""From a session to what a battle page shows."""

from dataclasses import replace

import gradio as gr

from webui import sentences, texts
from webui.answers import SideAnswer
from webui.battle.look import look_of
from webui.battle.parts import battle_parts
from webui.battle.session import Exchange, Session, Standing
from wire.battles import Side
from wire.ids import BattleId

DONE = Exchange("Hello", SideAnswer("Hi", "finished"), SideAnswer("Good day", "finished"))


def answered() -> Session:
    return Session(battle_id=BattleId("b1"), state="answered", exchanges=(DONE,))


def test_an_empty_page_invites() -> None:
    look = look_of(Session())
    assert look.is_empty
    assert look.send_shown
    assert not look.votes_shown
    assert not look.new_shown


def test_the_vote_bar_comes_only_when_both_sides_have_finished() -> None:
    assert look_of(answered()).votes_shown
    assert texts.VOTE_HINT in look_of(answered()).said
    streaming = answered().asking("More")
    assert not look_of(streaming).votes_shown
    assert look_of(streaming).stop_shown
    assert not look_of(streaming).send_shown


async def test_the_end_of_a_stream_shows_the_heads_anew_so_that_no_page_keeps_those_before_the_last() -> None:
    with gr.Blocks():
        parts = battle_parts("anonymous", "", "")
    session = answered()
    look = look_of(session)
    last = dict(zip(parts.text, parts.show_text(look), strict=True))[parts.heads]
    settled = dict(zip(parts.rest, parts.show_rest(session, look), strict=True))[parts.heads]
    assert settled.startswith(last)
    assert settled != last


def test_two_answers_without_a_word_can_be_asked_for_again_but_not_voted_on() -> None:
    silent = Exchange("Hello", SideAnswer("", "stopped"), SideAnswer("", "stopped"))
    look = look_of(Session(battle_id=BattleId("b1"), state="answered", exchanges=(silent,)))
    assert not look.votes_shown
    assert look.regenerate_shown
    assert texts.VOTE_HINT not in look.said


def test_an_aborted_battle_says_so_on_the_side_and_offers_no_vote() -> None:
    failed = Exchange("Hello", SideAnswer("Hi", "finished"), SideAnswer("", "failed", "worker_failed"))
    look = look_of(
        Session(battle_id=BattleId("b1"), state="aborted", exchanges=(failed,), failure_code="worker_failed")
    )
    assert not look.votes_shown
    assert look.new_shown
    assert texts.FAILED_SIDE in look.thread[2]["content"]
    assert texts.ABORTED in look.notice


def test_a_failed_turn_can_be_asked_again_and_the_turns_before_it_voted_on() -> None:
    failed = Exchange("Hello", SideAnswer("Hi", "finished"), SideAnswer("", "failed", "worker_failed"))
    first = look_of(Session(battle_id=BattleId("b1"), state="answered", exchanges=(failed,)))
    assert (first.regenerate_shown, first.regenerate_text, first.votes_shown) == (True, texts.ASK_AGAIN, False)
    assert texts.TURN_FAILED in first.notice
    later = look_of(Session(battle_id=BattleId("b1"), state="answered", exchanges=(DONE, failed)))
    assert (later.regenerate_text, later.votes_shown) == (texts.ASK_AGAIN, True)
    assert texts.TURN_FAILED_LATER in later.notice


def test_an_aborted_battle_offers_to_ask_the_same_again() -> None:
    failed = Exchange("Hello", SideAnswer("Hi", "finished"), SideAnswer("", "failed", "worker_failed"))
    assert look_of(Session(battle_id=BattleId("b1"), state="aborted", exchanges=(failed,))).again_shown
    assert not look_of(answered()).again_shown


def test_what_was_written_is_shown_as_it_was_written() -> None:
    exchange = Exchange("What is <b>?", SideAnswer("A <b> is bold", "finished"), SideAnswer("`<b>`", "finished"))
    thread = look_of(Session(battle_id=BattleId("b1"), state="answered", exchanges=(exchange,))).thread
    assert [message["content"] for message in thread] == ["What is &lt;b>?", "A &lt;b> is bold", "`<b>`"]


def test_the_reveal_names_both_and_marks_the_choice() -> None:
    voted = answered().revealed({"a": "owl<1>", "b": "fox"}, "a", is_rated=True)
    look = look_of(voted)
    assert "owl&lt;1&gt;" in look.reveal
    assert texts.VOTED["a"] in look.reveal
    assert look.can_type
    assert look.placeholder == texts.PROMPT_AFTER


def test_the_reveal_shows_place_and_change() -> None:
    voted = Session(
        battle_id=BattleId("b1"),
        state="voted",
        exchanges=(DONE,),
        names=("owl", "fox"),
        outcome="a",
        standings={"a": Standing(1012.4, 1, 4, 12.4), "b": Standing(990, 3, 4, is_new=True)},
    )
    reveal = look_of(voted).reveal
    assert "+12.4" in reveal
    assert sentences.rank(1, 4) in reveal
    assert texts.NEW_TO_BOARD in reveal
    unsure = look_of(replace(voted, standings={"a": Standing(1012.4, None, 4, 35.6)})).reveal
    assert texts.NO_RANK in unsure
    assert "+35.6" not in unsure, "too few votes for a rank are too few for a change"


def test_a_vote_that_is_not_rated_shows_no_change_of_a_rating() -> None:
    voted = replace(answered(), mode="named").revealed({"a": "owl", "b": "fox"}, "a", is_rated=False, flags=("named",))
    standings: dict[Side, Standing] = {"a": Standing(1012.4, 1, 4, 12.4), "b": Standing(990, 3, 4, is_new=True)}
    reveal = look_of(replace(voted, standings=standings)).reveal
    assert sentences.rank(1, 4) in reveal
    assert "+12.4" not in reveal
    assert texts.NEW_TO_BOARD not in reveal


def test_the_reveal_is_said_with_both_names() -> None:
    voted = answered().revealed({"a": "owl", "b": "fox"}, "b", is_rated=True)
    assert look_of(voted).said == f"{texts.VOTED['b']}. A is owl. B is fox."


def test_a_vote_that_is_not_rated_says_why() -> None:
    voted = answered().revealed({"a": "owl", "b": "fox"}, "a", is_rated=False, flags=("stopped", "too_quick"))
    assert look_of(voted).reveal.count("<p") == 3  # verdict, reason, and what can be done with the battle
    assert (
        "This vote is recorded but not rated: an answer was stopped before its end; the vote came sooner than anybody "
        "can read the answers."
    ) in look_of(voted).reveal


def test_a_vote_that_is_not_rated_for_reasons_that_are_not_told_says_no_wrong_one() -> None:
    voted = answered().revealed({"a": "owl", "b": "fox"}, "a", is_rated=False)
    assert "This vote is recorded but not rated." in look_of(voted).reveal


def test_a_stopped_answer_is_told_before_the_vote_where_votes_are_rated() -> None:
    stopped = Exchange("Hello", SideAnswer("Hi", "stopped"), SideAnswer("Good day", "finished"))
    session = replace(answered(), exchanges=(stopped,))
    assert texts.ANSWER_STOPPED in look_of(session).notice
    assert texts.REGENERATE_WHOLE in look_of(session).notice
    earlier = replace(session, exchanges=(stopped, DONE))
    assert texts.ANSWER_STOPPED in look_of(earlier).notice
    assert texts.REGENERATE_WHOLE not in look_of(earlier).notice, "only the last turn is answered again"
    assert look_of(replace(session, mode="named")).notice == ""
    assert look_of(answered()).notice == ""


def test_a_full_conversation_can_only_be_voted_on() -> None:
    look = look_of(Session(battle_id=BattleId("b1"), state="answered", exchanges=(DONE,), max_turns=1))
    assert not look.can_type
    assert look.votes_shown


def test_a_battle_that_no_side_ended_says_why_it_is_over() -> None:
    look = look_of(Session(battle_id=BattleId("b1"), state="aborted", exchanges=(DONE,), failure_code="shutting_down"))
    assert sentences.failure("shutting_down") in look.notice
