"""A conversation with two models as a page, as Markdown and as JSON. Pure: no I/O."""

import json
from dataclasses import dataclass
from html import escape

from markdown_it import MarkdownIt

from webui import texts
from webui.thoughts import folded
from wire.battles import SIDES, Answer, BattleView, Outcome, Side, Turn
from wire.history import SharedBattle

#: Answers and questions may hold anything: tags are shown as text, and an image would be loaded from another host.
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")


@dataclass(frozen=True)
class Conversation:
    """What all forms of a conversation hold."""

    turns: tuple[Turn, ...]
    models: dict[Side, str]  #: empty until the vote
    outcome: Outcome | None

    @classmethod
    def of_view(cls, view: BattleView) -> "Conversation":
        """That of a battle, as its visitor may see it."""
        models = {side: of.model for side in SIDES if (of := view.a if side == "a" else view.b).model is not None}
        return cls(view.turns, models, view.outcome)

    @classmethod
    def of_shared(cls, battle: SharedBattle) -> "Conversation":
        """That of a shared battle."""
        return cls(battle.turns, battle.models, battle.outcome)

    def name(self, side: Side) -> str:
        """What a side is called."""
        return self.models.get(side, texts.ANSWER_OF_SIDE[side])

    def as_markup(self) -> str:
        """Outcome and turns, for a page."""
        verdict = "" if self.outcome is None else f'<p class="verdict">{escape(texts.THEIR_VOTE[self.outcome])}</p>'
        return verdict + "".join(self._turn_markup(turn) for turn in self.turns)

    def _turn_markup(self, turn: Turn) -> str:
        sides = "".join(
            f'<div role="group" class="side side-{side}{" chosen" if self.outcome == side else ""}" '
            f'aria-label="{escape(self.name(side))}"><h3><b>{texts.SIDE_NAME[side]}</b> {escape(self._of(side))}</h3>'
            f"{_thoughts_markup(turn, side)}"
            f"{_markup(_answer(turn, side).text)}</div>"
            for side in SIDES
        )
        question = f'<div class="question">{_markup(turn.content)}</div>'
        return f'<article><h2 class="number">{turn.number}</h2>{question}<div class="sides">{sides}</div></article>'

    def _of(self, side: Side) -> str:
        return self.models.get(side, "")

    def as_markdown(self) -> str:
        """The conversation as a Markdown file."""
        parts = [f"# {texts.CONVERSATION}"]
        if self.outcome is not None:
            parts.append(texts.THEIR_VOTE[self.outcome])
        for turn in self.turns:
            parts.append(f"## {turn.number}. {texts.QUESTION}\n\n{turn.content}")
            for side in SIDES:
                answer = _answer(turn, side)
                thoughts = f"{_quoted(answer.thoughts)}\n\n" if answer.thoughts else ""
                parts.append(f"### {self._title(side)}\n\n{thoughts}{answer.text}")
        return "\n\n".join(parts) + "\n"

    def _title(self, side: Side) -> str:
        model = self._of(side)
        return f"{texts.SIDE_NAME[side]}: {model}" if model else texts.ANSWER_OF_SIDE[side]

    def as_json(self) -> str:
        """The conversation as a JSON file: `turns` with a message, both answers and the thoughts of models that think,
        `models` and `outcome` if known."""
        turns = [
            {
                "question": turn.content,
                **{side: _answer(turn, side).text for side in SIDES},
                **({"thoughts": thoughts} if (thoughts := _thoughts(turn)) else {}),
            }
            for turn in self.turns
        ]
        content = {"models": self.models or None, "outcome": self.outcome, "turns": turns}
        return json.dumps(content, ensure_ascii=False, indent=2) + "\n"


def _markup(text: str) -> str:
    """Markdown as markup. Each block has the direction of its own text, as on the pages of battles."""
    tokens = _MARKDOWN.parse(text)
    for token in tokens:
        if token.level == 0 and token.nesting == 1:
            token.attrSet("dir", "auto")
    return str(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))


def _thoughts(turn: Turn) -> dict[Side, str]:
    return {side: thoughts for side in SIDES if (thoughts := _answer(turn, side).thoughts)}


def _thoughts_markup(turn: Turn, side: Side) -> str:
    thoughts = _answer(turn, side).thoughts
    return folded(thoughts, f"thoughts-{turn.number}-{side}") if thoughts else ""


def _quoted(thoughts: str) -> str:
    lines = (f"**{texts.THOUGHTS}**", "", *thoughts.splitlines())
    return "\n".join(f"> {line}".rstrip() for line in lines)


def _answer(turn: Turn, side: Side) -> Answer:
    return turn.a if side == "a" else turn.b
