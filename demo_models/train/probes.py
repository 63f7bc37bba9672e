"""Held-out questions with checkable answers, made by the same generator from the test side of its split.

A probe is a dialogue up to its last user turn; the earlier answers are the reference answers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

from demo_models.train.architectures import ModelName
from demo_models.train.dialogues import SKILLS, skill_turn
from demo_models.train.skills import memory, toolboxes, tools
from demo_models.train.turns import Match, Turn

PROBE_SEED = 7
NUM_TURNS_BETWEEN = 10
REFUSAL = re.compile(r"beyond me|I don't know that|too difficult for me|too large for me")
#: What visitors often type first, and a pattern of a sensible reply.
FIRST_WORDS: tuple[tuple[str, str], ...] = (
    ("Hi!", "Hello|Hi"), ("Hello", "Hello|Hi"), ("hey there", "Hello|Hi"),
    ("hi there, how are you?", "well|fine|great"), ("Good morning!", "morning|Hello|Hi"),
    ("good evening", "evening|Hello|Hi"), ("How are you?", "well|fine|great"), ("What can you do?", "I can|ask me"),
    ("what can you do for me", "I can|ask me"), ("Who are you?", "language model"),
    ("Which model are you?", "language model"), ("What is your name?", "language model"),
    ("Who made you?", "language model"), ("Are you ChatGPT?", "language model"), ("Tell me a joke", "\\?.*[!.]"),
    ("tell me a joke please", "\\?.*[!.]"), ("Thanks!", "welcome|pleasure|Glad|time"),
    ("thank you so much", "welcome|pleasure|Glad|time"), ("Bye!", "[Bb]ye|See you"),
    ("Write a short story about a dragon", "dragon"), ("Tell me a story about a fox", "fox"),
    ("tell me a story", "[Oo]nce"), ("What is the capital of France?", "Paris"), ("capital of japan", "Tokyo"),
    ("What is 2+2?", "= 4\\."), ("2 + 2", "= 4\\."), ("What is 17 + 25?", "= 42\\."), ("7 times 8", "56"),
    ("Count to ten", "1, 2, 3|beyond|difficult"), ("Count to 10", "9, 10\\."), ("My name is Anna.", "Anna"),
    ("Spell banana", "B-A-N-A-N-A"), ("How many legs does a spider have?", "8 legs"),
    ("What is the weather today?", REFUSAL.pattern), ("Write a python function", REFUSAL.pattern),
    ("What is the opposite of hot?", "cold"), ("Explain quantum computing", REFUSAL.pattern),
    ("I am bored", "joke|story"), ("sort 5 3 9 1", "1, 3, 5, 9"), ("how many minutes in 2 hours?", "120"),
)  # fmt: skip


@dataclass(frozen=True)
class Probe:
    """Messages as the chat template takes them, and the pattern that a correct last reply matches."""

    skill: str
    messages: tuple[tuple[str, str], ...]
    accept: str

    def is_correct(self, reply: str) -> bool:
        """True if the reply matches the pattern."""
        return re.search(self.accept, reply) is not None


def pattern(answer: str, match: Match) -> str:
    """The regular expression of a correct reply."""
    escaped = re.escape(answer)
    match match:
        case "refusal":
            return REFUSAL.pattern
        case "last_number":
            return rf"(?<![\d-]){escaped}\D*$"
        case "any_case":
            return rf"(?i)(?<!\w){escaped}(?!\w)"
        case "contains":
            return rf"(?<!\w){escaped}(?!\w)"


def _probe(skill: str, before: list[Turn], last: Turn) -> Probe:
    messages = [message for turn in before for message in (("user", turn.user), ("assistant", turn.assistant))]
    return Probe(skill, (*messages, ("user", last.user)), pattern(last.answer, last.match))


def _memory_probe(rng: Random) -> Probe:
    notebook = memory.Notebook("test")
    # Only topics whose values are held out: an unseen wording of a trained colour is an easier question.
    kind = rng.choice(memory.OPEN_TOPICS)
    before = [notebook.tell(rng, kind)]
    if rng.random() < 0.4:
        before.append(notebook.tell(rng, rng.choice([topic for topic in memory.TOPICS if topic != kind])))
    before += [skill_turn(rng, "train") for _ in range(rng.randint(0, 3))]
    return _probe("memory", before, notebook.ask(rng, kind))


def _long_memory_probe(rng: Random) -> Probe:
    notebook = memory.Notebook("test")
    before = [notebook.tell(rng, "name"), *(skill_turn(rng, "train") for _ in range(NUM_TURNS_BETWEEN))]
    return _probe("long memory", before, notebook.ask(rng, "name"))


def _tool_probe(rng: Random, skill: str) -> Probe:
    """A question of the test side with the tools of the examples in any order, or with tools in held-out wordings."""
    example = tuple(rng.sample(toolboxes.EXAMPLE_TOOLS, len(toolboxes.EXAMPLE_TOOLS)))
    box = toolboxes.toolbox(rng, "test", ("calculator", "time", "lookup")) if skill == "other tools" else example
    system = ("system", toolboxes.tools_text(toolboxes.system_text(rng), box))
    call, answer = tools.asked(rng, "test", box)
    match skill:
        case "tool answers":
            before = (system, ("user", call.user), ("assistant", call.assistant), ("tool", answer.user))
            return Probe(skill, before, f"^{re.escape(answer.assistant)}$")
        case "no call":
            return Probe(skill, (system, ("user", tools.without_call(rng, "test").user)), "^(?!.*<tool_call>)")
        case _:
            return Probe(skill, (system, ("user", call.user)), f"^{re.escape(call.assistant)}$")


def probes(skill: str, count: int) -> list[Probe]:
    """Return the first `count` probes of a skill: always the same ones, for every model."""
    rng = Random(f"{PROBE_SEED}/{skill}")
    if skill in TOOL_SKILLS:
        return [_tool_probe(rng, skill) for _ in range(count)]
    if skill == "memory":
        return [_memory_probe(rng) for _ in range(count)]
    if skill == "long memory":
        return [_long_memory_probe(rng) for _ in range(count)]
    if skill == "first words":
        return [Probe(skill, (("user", text),), accept) for text, accept in FIRST_WORDS[:count]]
    return [_probe(skill, [], SKILLS[skill][0](rng, "test")) for _ in range(count)]


PROBED_SKILLS = (
    "arithmetic",
    "facts",
    "memory",
    "long memory",
    "words",
    "sorting",
    "counting",
    "units",
    "rewriting",
    "stories",
    "beyond",
    "first words",
)
TOOL_SKILLS = ("tool calls", "tool answers", "no call", "other tools")


def probed_skills(name: ModelName) -> tuple[str, ...]:
    """The skills by which a model is measured."""
    return (*TOOL_SKILLS, *PROBED_SKILLS) if name == "wren" else PROBED_SKILLS
