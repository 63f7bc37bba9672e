"""How a battle is shown: `look_of` is a pure function from a session to a Look."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from webui import sentences, texts
from webui.answers import answer_markdown
from webui.as_written import as_written
from webui.battle.reveal import reveal, spoken
from webui.battle.session import Exchange, Session
from webui.feedback.block import feedback_block
from webui.widgets import notice
from wire.battles import SIDES, Side

Message = dict[str, str]


@dataclass(frozen=True)
class Look:
    """Everything a battle page shows, by name. Each field is one output."""

    thread: tuple[Message, ...]
    heads: str
    said: str  #: for screen readers: that it is time to vote, and which models it were
    is_empty: bool
    votes_shown: bool
    undo_shown: bool
    notice: str
    reveal: str
    feedback: str
    placeholder: str
    can_type: bool
    send_shown: bool
    stop_shown: bool
    regenerate_shown: bool
    regenerate_text: str
    again_shown: bool
    new_shown: bool
    resume_shown: bool


def look_of(session: Session) -> Look:
    """Everything that a battle page shows of `session`. Pure."""
    streaming = session.is_busy and session.state == "streaming"
    can_vote = session.is_votable and session.has_answers
    return Look(
        thread=messages(session.exchanges),
        heads=_heads(session),
        said=_said(session, can_vote=can_vote),
        is_empty=not session.exchanges,
        votes_shown=can_vote,
        undo_shown=session.choice is not None and session.notice is None,
        notice=_notice(session),
        reveal=reveal(session),
        feedback=_feedback(session),
        placeholder=_placeholder(session),
        can_type=not session.is_full or session.is_over,
        send_shown=not streaming,
        stop_shown=streaming,
        regenerate_shown=session.is_votable,
        regenerate_text=texts.ASK_AGAIN if session.has_failed_turn else texts.REGENERATE,
        again_shown=session.state == "aborted" and bool(session.exchanges),
        new_shown=bool(session.exchanges) and not session.is_busy,
        resume_shown=session.can_resume,
    )


def _said(session: Session, *, can_vote: bool) -> str:
    if session.choice is not None:
        return sentences.chosen(session.choice.outcome)
    return sentences.in_a_row(texts.BOTH_DONE, texts.VOTE_HINT) if can_vote else spoken(session)


def messages(exchanges: Sequence[Exchange]) -> tuple[Message, ...]:
    """The conversation as the Chatbot takes it: for each turn the prompt, then answer A and answer B."""
    found: list[Message] = []
    for number, exchange in enumerate(exchanges, start=1):
        found.append({"role": "user", "content": as_written(exchange.content)})
        for side in SIDES:
            answer = answer_markdown(exchange.side(side), f"thoughts-{number}-{side}", failed=texts.FAILED_SIDE)
            found.append({"role": "assistant", "content": answer})
    return tuple(found)


def _heads(session: Session) -> str:
    """The strip with the name and status of both sides. It keeps its place while text streams."""
    if not session.exchanges:
        return ""
    cells = "".join(_head(session, side) for side in SIDES)
    return f'<div class="agon-heads">{cells}</div>'


def _head(session: Session, side: Side) -> str:
    answer = session.exchanges[-1].side(side)
    status = texts.CUT if answer.is_cut else texts.STATUS[answer.status]
    if session.is_interrupted and answer.status in ("waiting", "writing"):
        status = texts.RECONNECTING_SIDE
    name = session.name(side)
    named = f'<span class="agon-name">{escape(name)}</span>' if name is not None else ""
    shown_status = "" if session.state == "voted" and answer.status == "finished" else escape(status)
    chosen = " agon-chosen" if session.outcome == side else ""
    return (
        f'<div class="agon-head agon-side-{side}{chosen}"><span class="agon-chip" aria-hidden="true">'
        f'{texts.SIDE_NAME[side]}</span><span class="agon-said">{texts.ANSWER_OF_SIDE[side]}</span>'
        f'<div>{named}<span class="agon-status agon-{answer.status}">{shown_status}</span></div></div>'
    )


def _notice(session: Session) -> str:
    if session.state == "aborted":
        has_reason = any(session.exchanges[-1].side(side).status == "failed" for side in SIDES if session.exchanges)
        reason = "" if has_reason or session.failure_code is None else sentences.failure(session.failure_code)
        sentence = sentences.in_a_row(reason, texts.ABORTED)
    elif session.state == "expired":
        sentence = texts.EXPIRED
    elif session.refusal_code is not None:
        sentence = sentences.failure(session.refusal_code)
    elif session.has_failed_turn and session.notice is None:
        sentence = texts.TURN_FAILED_LATER if session.has_answers else texts.TURN_FAILED
    elif session.notice is not None:
        sentence = session.notice
    elif session.choice is not None:
        return f'<p class="agon-notice agon-chosen-vote">{escape(sentences.chosen(session.choice.outcome))}</p>'
    elif session.is_votable and session.has_answers and session.stopped_turns and session.mode == "anonymous":
        helps = session.stopped_turns == (len(session.exchanges) - 1,)
        sentence = sentences.in_a_row(texts.ANSWER_STOPPED, texts.REGENERATE_WHOLE) if helps else texts.ANSWER_STOPPED
        return f'<p class="agon-notice" role="status">{escape(sentence)}</p>'
    else:
        return ""
    return notice(sentence)


def _feedback(session: Session) -> str:
    if session.battle_id is None or session.outcome is None or session.feedback is None:
        return ""
    return feedback_block(session.battle_id, session.outcome, session.feedback)


def _placeholder(session: Session) -> str:
    if session.is_over:
        return texts.PROMPT_AFTER
    if session.is_full:
        return texts.PROMPT_FULL
    return texts.PROMPT_NEXT if session.exchanges else texts.PROMPT_FIRST
