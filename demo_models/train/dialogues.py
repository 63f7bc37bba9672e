"""Mixes the skills into dialogues of one to many turns, mistypes the user's side.

Deterministic: dialogue number `i` of a seed does not depend on what was generated before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from demo_models.train.skills import (
    arithmetic,
    beyond,
    counting,
    facts,
    memory,
    smalltalk,
    stories,
    toolboxes,
    tools,
    units,
    words,
)
from demo_models.train.turns import Split, Turn

Sample = Callable[[Random, Split], Turn]

#: Share of turns. memory is not here: it needs the earlier turns of its dialogue.
SKILLS: dict[str, tuple[Sample, int]] = {
    "smalltalk": (smalltalk.sample, 14),
    "arithmetic": (arithmetic.sample, 40),
    "facts": (facts.sample, 22),
    "words": (words.sample, 10),
    "sorting": (words.sort_numbers, 5),
    "counting": (counting.sample, 4),
    "units": (units.sample, 4),
    "rewriting": (words.rewriting, 5),
    "stories": (stories.sample, 3),
    "beyond": (beyond.sample, 16),
}
SYSTEM_PROMPTS = (
    "You are a helpful assistant.", "You are a friendly assistant.", "Answer briefly.", "Be kind and helpful.",
    "You are a small language model.", "You are an assistant. Answer in one sentence.", "Please be polite.",
    "You are a helpful, honest assistant. Keep your answers short.",
)  # fmt: skip
LONG_SHARE = 0.012
MEMORY_SHARE = 0.3
#: Of the dialogues for a model that uses tools: without tools, and of the questions: those that need a tool.
PLAIN_SHARE = 0.15
CALL_SHARE = 0.62
MISSING_SHARE = 0.09


@dataclass(frozen=True)
class Dialogue:
    """A system text (or none) and the exchanges after it."""

    system: str | None
    turns: tuple[Turn, ...]


def _typo(rng: Random, text: str) -> str:
    """Swap, drop or double one letter inside a longer word: first letters and digits stay."""
    places = [i for i in range(1, len(text) - 1) if text[i - 1 : i + 2].isalpha()]
    if len(places) < 4:
        return text
    i = rng.choice(places)
    match rng.randrange(3):
        case 0:
            return text[:i] + text[i + 1] + text[i] + text[i + 2 :]
        case 1:
            return text[:i] + text[i + 1 :]
        case _:
            return text[:i] + text[i] + text[i:]


def mistype(rng: Random, turn: Turn) -> str:
    """The user's text with hasty typing (case, punctuation, typos), as far as the answer stays the same."""
    text = turn.user
    if turn.typing != "fixed" and rng.random() < 0.28:
        text = text.lower()
    if turn.typing != "fixed" and rng.random() < 0.02:
        text = text.upper()
    if text[-1:] in ".?!" and len(text) > 3 and rng.random() < 0.3:
        text = text[:-1]
    if turn.typing == "free" and rng.random() < 0.07:
        text = _typo(rng, text)
    return text or turn.user


def skill_turn(rng: Random, split: Split) -> Turn:
    """One turn of a random skill, by the shares in SKILLS."""
    names = list(SKILLS)
    name = rng.choices(names, [SKILLS[name][1] for name in names])[0]
    return SKILLS[name][0](rng, split)


def _memory_dialogue(rng: Random, num_turns: int) -> list[Turn]:
    notebook = memory.Notebook("train")
    turns: list[Turn] = []
    if rng.random() < 0.92:
        if rng.random() < 0.25:
            turns.append(smalltalk.greeting(rng))
        turns.append(notebook.tell(rng))
    while len(turns) < num_turns:
        match rng.choices(("tell", "ask", "use", "other"), (20, 45, 6, 29))[0]:
            case "tell":
                turns.append(notebook.tell(rng))
            case "use" if notebook.name is not None:
                turns.append(notebook.use(rng))
            case "ask":
                turns.append(notebook.ask(rng))
            case _:
                turns.append(skill_turn(rng, "train"))
    return turns


def dialogue(seed: int, number: int) -> Dialogue:
    """Return training dialogue `number` of the stream named by `seed`."""
    rng = Random(f"{seed}/{number}")
    is_long = rng.random() < LONG_SHARE
    if is_long:
        num_turns = rng.randint(10, 40)
        turns = _memory_dialogue(rng, num_turns)
    elif rng.random() < MEMORY_SHARE:
        turns = _memory_dialogue(rng, rng.choices((1, 2, 3, 4, 5, 6), (4, 28, 26, 20, 12, 10))[0])
    else:
        num_turns = rng.choices((1, 2, 3, 4, 5, 6), (40, 22, 14, 10, 8, 6))[0]
        turns = [skill_turn(rng, "train") for _ in range(num_turns)]
    system = rng.choice(SYSTEM_PROMPTS) if rng.random() < 0.12 else None
    return Dialogue(system, _typed(rng, turns))


def _typed(rng: Random, turns: list[Turn]) -> tuple[Turn, ...]:
    return tuple(replace(turn, user=mistype(rng, turn)) for turn in turns)


def tool_dialogue(seed: int, number: int) -> Dialogue:
    """Return training dialogue `number` of the stream named by `seed` for a model that uses tools."""
    rng = Random(f"{seed}/tools/{number}")
    if rng.random() < PLAIN_SHARE:
        return dialogue(seed, number)
    box = toolboxes.toolbox(rng, "train")
    can_call = any(tool.family is not None for tool in box)
    turns: list[Turn] = []
    for _ in range(rng.choices((1, 2, 3, 4, 5, 6), (8, 16, 24, 22, 17, 13))[0]):
        kind = rng.random()
        if can_call and kind < CALL_SHARE:
            turns += tools.asked(rng, "train", box)
        elif kind < CALL_SHARE + MISSING_SHARE:
            turns.append(tools.missing(rng, "train", box))
        else:
            turns.append(tools.without_call(rng, "train"))
    return Dialogue(toolboxes.tools_text(toolboxes.system_text(rng), box), _typed(rng, turns))
