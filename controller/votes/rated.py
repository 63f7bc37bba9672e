"""Why a vote is not rated, as far as it is known when it is cast. Pure.

What is found later is in the judgements of the log.
"""

from dataclasses import dataclass

from controller.battles.battle_record import Battle, StoredTurn
from wire.battles import SIDES
from wire.votes import VoteFlag


@dataclass(frozen=True)
class ReadingPace:
    """How fast a person may read and vote. Time counts from the first word of the last turn's answers, because they are
    read while they are written. `min_s`: shortest time, 0: no vote is too quick. `max_chars_per_s`: of both answers."""

    min_s: float
    max_chars_per_s: float

    def is_too_quick(self, turn: StoredTurn, since_answers_ms: float) -> bool:
        """Whether a vote, `since_answers_ms` after the end of `turn`, is faster than a person."""
        if self.min_s <= 0:
            return False
        answers = [turn.answer(side) for side in SIDES]
        first_ms = min((answer.first_token_ms for answer in answers if answer.first_token_ms is not None), default=None)
        last_ms = max((answer.total_ms for answer in answers if answer.total_ms is not None), default=None)
        streamed_ms = max(0.0, last_ms - first_ms) if first_ms is not None and last_ms is not None else 0.0
        shown_ms = [answer.shown_ms for answer in answers if answer.shown_ms is not None]
        streamed_ms = max(shown_ms, default=streamed_ms)
        seen_s = (streamed_ms + since_answers_ms) / 1000
        return seen_s < max(self.min_s, sum(len(answer.text) for answer in answers) / self.max_chars_per_s)


def known_flags(battle: Battle, pace: ReadingPace) -> tuple[VoteFlag, ...]:
    """The flags of a vote on `battle` that is cast now; none: it is rated."""
    flags: list[VoteFlag] = []
    if battle.mode == "named":
        flags.append("named")
    if battle.identity_revealed:
        flags.append("identity_revealed")
    if any(turn.answer(side).finish_reason == "abort" for turn in battle.answered_turns for side in SIDES):
        flags.append("stopped")
    since_ms = battle.since_answers_ms
    answered = battle.answered_turns
    if answered and since_ms is not None and pace.is_too_quick(answered[-1], since_ms):
        flags.append("too_quick")
    if battle.sides["a"].model == battle.sides["b"].model:
        flags.append("same_model")
    return tuple(flags)
