"""The battle page: two hidden models, one question, a vote, the reveal."""

from typing import Any

from webui import texts
from webui.battle.handlers import wire_battle
from webui.battle.parts import battle_parts
from webui.battle.turn import Turns
from webui.starter_prompts import StarterPrompts
from webui.widgets import header
from wire.battles import CreateBattle


def build(page: Any, turns: Turns, starters: StarterPrompts) -> None:
    """Create the page's components and bind their events."""
    header("/")
    parts = battle_parts("anonymous", texts.BATTLE_TITLE, texts.BATTLE_LEAD)
    wire_battle(page, parts, turns, "anonymous", lambda: CreateBattle(mode="anonymous"), [])
    starters.bind(page, parts.examples)
