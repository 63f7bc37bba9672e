"""Separates what a model thinks from what it answers, in text that comes in pieces.

A model thinks between two tags at the beginning of its output. Some chat templates write the first tag at the end of
the prompt. Tags further on in an answer are text like any other. Knows no tokens and no requests.
"""

from typing import Literal, NamedTuple

from engine.request import ToolCallDelta
from engine.sampling_params import ThoughtTags

DEFAULT_TAGS = ThoughtTags("<think>", "</think>")
#: Pairs of tags that models are trained on.
KNOWN_TAGS = (
    DEFAULT_TAGS,
    ThoughtTags("[THINK]", "[/THINK]"),
    ThoughtTags("<thinking>", "</thinking>"),
    ThoughtTags("<thought>", "</thought>"),
    ThoughtTags("<reasoning>", "</reasoning>"),
    ThoughtTags("<seed:think>", "</seed:think>"),
    ThoughtTags("<|START_THINKING|>", "<|END_THINKING|>"),
    ThoughtTags("<|begin_of_thought|>", "<|end_of_thought|>"),
    ThoughtTags("<|channel>", "<channel|>", word="thought"),  # of Gemma 4
)


class Said(NamedTuple):
    """A piece of output: the thoughts in it, then the text of the answer and the tool calls. Each may be empty."""

    thoughts: str
    text: str
    tool_calls: tuple[ToolCallDelta, ...] = ()

    def then(self, rest: "Said") -> "Said":
        """Both pieces as one."""
        return Said(self.thoughts + rest.thoughts, self.text + rest.text, self.tool_calls + rest.tool_calls)


class ThoughtSplitter:
    """Splits the output of one sequence. The pieces of both kinds joined do not depend on where the output was cut.

    Tags are dropped, with the blanks around them. What may become a tag is held back."""

    def __init__(self, tags: ThoughtTags) -> None:
        self._tags = tags
        self._state: Literal["before", "inside", "after", "answer"] = "before"
        self._held = ""
        self._has_thoughts = False  #: some were returned: blanks that follow belong to them

    @property
    def is_thinking(self) -> bool:
        """Whether the output so far ends in thoughts."""
        if self._state != "before":
            return self._state == "inside"
        return self._tags.is_open or self._held.lstrip().startswith(self._tags.begin)

    def push(self, piece: str) -> Said:
        """Take more output; return what is certain now."""
        if self._state == "answer":
            return Said("", piece)
        self._held += piece
        if self._state == "before":
            self._begin()
        thoughts = self._think() if self._state == "inside" else ""
        return Said(thoughts, self._answer())

    def flush(self) -> Said:
        """What was held back, at the end of the output."""
        held, is_thinking = self._held, self.is_thinking
        self._held = ""
        if is_thinking:
            if self._state == "before":
                held = held.lstrip().removeprefix(self._tags.begin)
            return Said(held.rstrip() if self._has_thoughts else held.strip(), "")
        return Said("", "" if self._state == "after" else held)

    def _begin(self) -> None:
        """Decide whether the output begins with thoughts, once it can be known."""
        found, opening = self._held.lstrip(), self._tags.begin + self._tags.word
        if opening.startswith(found) and found != opening:
            return
        if found.startswith(self._tags.begin):
            self._state, self._held = "inside", found.removeprefix(self._tags.begin).removeprefix(self._tags.word)
        else:
            self._state = "inside" if self._tags.is_open else "answer"

    def _think(self) -> str:
        thoughts, tag, rest = self._held.partition(self._tags.end)
        if tag:
            self._state, self._held = "after", rest
        else:
            num_held = _overlap(thoughts, self._tags.end)
            thoughts = thoughts[: len(thoughts) - num_held]
        certain = thoughts.rstrip()
        if not tag:
            self._held = self._held[len(certain) :]
        if not self._has_thoughts:
            certain = certain.lstrip()
        self._has_thoughts |= bool(certain)
        return certain

    def _answer(self) -> str:
        if self._state == "after":
            self._held = self._held.lstrip()
            if self._held:
                self._state = "answer"
        if self._state != "answer":
            return ""
        text, self._held = self._held, ""
        return text


def _overlap(text: str, tag: str) -> int:
    """Length of the longest proper beginning of `tag` at the end of `text`."""
    return next((length for length in range(len(tag) - 1, 0, -1) if text.endswith(tag[:length])), 0)
