"""What the battle keeps of a turn that has ended: its answers, the workers that gave them, and facts for the vote."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from controller.battles.battle_record import Battle, StoredAnswer, StoredTurn, side_fields
from controller.battles.side_answer import SideAnswer
from controller.battles.turn_tools import TurnTools
from wire.battles import Side
from wire.errors import ErrorDetail


def answered_turn(
    asked: StoredTurn,
    answers: Mapping[Side, SideAnswer],
    failures: Mapping[Side, ErrorDetail],
    shown_ms: Mapping[Side, float | None],
) -> StoredTurn:
    """The turn as it is stored. failures: of sides that have failed. shown_ms: see SideAnswer.to_store."""
    stored: dict[str, StoredAnswer] = {
        side: answer.to_store(shown_ms[side]).model_copy(update={"error": failures.get(side)})
        for side, answer in answers.items()
    }
    return asked.model_copy(update=stored)


def changes_of(turn: int, last: StoredTurn, answers: Mapping[Side, SideAnswer]) -> dict[str, str]:
    """The fields of the battle that its turn of this number changes."""
    changes = {"state": "answered", f"turn:{turn}": last.model_dump_json()}
    for side, answer in answers.items():
        if answer.lane is not None:
            changes.update(side_fields(side, replace(answer.stored, worker_id=answer.lane.worker.worker_id)))
    return changes


async def facts_for_vote(battle: Battle, turn: int, last: StoredTurn, tools: TurnTools) -> dict[str, str]:
    """What a vote on the battle will have to know after this turn. battle: as it was before the turn. Answers are read
    in a thread, since long ones take some tenths of a second."""
    earlier = battle.turns[: turn - 1]
    turns = (*earlier, last)
    facts = {"votable": "1" if any(each.is_votable for each in turns) else "0"}
    if all(each.has_failed for each in earlier):
        facts["prompt"] = tools.prompt_key(last.content)
    said = [text for answer in (last.a, last.b) for text in (answer.text, answer.thoughts) if text]
    claims = tools.identity.claims()
    if await asyncio.to_thread(claims.in_answers, said, [each.content for each in turns]):
        facts["identity"] = "1"
    return facts
