"""Reads the output of one sample while it grows: what is text, what is thought, what is a tool call.

Malformed calls become text; nothing that the model wrote is lost but the form itself, and nothing raises. One instance
belongs to one sample and one thread.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from engine.sampling_params import ToolCallSyntax, ToolFormat, ToolFunction
from engine.text.thoughts import Said
from engine.text.tool_calls.deepseek import parse_deepseek
from engine.text.tool_calls.gemma import parse_gemma
from engine.text.tool_calls.glm import parse_glm
from engine.text.tool_calls.harmony import parse_harmony
from engine.text.tool_calls.kimi import parse_kimi
from engine.text.tool_calls.llama import parse_llama_json
from engine.text.tool_calls.mistral import parse_mistral
from engine.text.tool_calls.phi import parse_phi
from engine.text.tool_calls.pythonic import parse_pythonic
from engine.text.tool_calls.reader import Parsing, Reader
from engine.text.tool_calls.tagged import parse_tagged
from engine.text.tool_calls.writer import Done, Writer

_Parse = Callable[[Reader, Writer, Sequence[ToolFunction]], Parsing[None]]

_PARSERS: Mapping[ToolFormat, _Parse] = {
    "deepseek_v3": parse_deepseek,
    "deepseek_v31": parse_deepseek,
    "gemma": parse_gemma,
    "glm": parse_glm,
    "granite": partial(parse_tagged, marks=("<|tool_call|>", "<tool_call>")),
    "harmony": parse_harmony,
    "hermes": partial(parse_tagged, marks=("<tool_call>",)),
    "kimi": parse_kimi,
    "llama3_json": parse_llama_json,
    "mistral": parse_mistral,
    "mistral_list": parse_mistral,
    "phi": parse_phi,
    "pythonic": parse_pythonic,
    "qwen3_xml": partial(parse_tagged, marks=("<tool_call>",)),
}


class ToolCallParser:
    """Splits the output of one sample. What it says joined does not depend on where the output was cut."""

    def __init__(self, syntax: ToolCallSyntax, sample_index: int = 0) -> None:
        self._reader = Reader()
        self._writer = Writer(syntax, sample_index)
        self._steps = _PARSERS[syntax.format](self._reader, self._writer, syntax.functions)
        self._has_ended = False
        self.is_done = False  #: the only call that the syntax allows is complete
        if syntax.begun:
            self.push(syntax.begun)

    @property
    def num_calls(self) -> int:
        """Calls that have begun."""
        return self._writer.num_calls

    @property
    def is_thinking(self) -> bool:
        """Whether the output so far ends in thoughts; only formats that have them themselves tell."""
        return self._writer.is_thinking

    def push(self, piece: str) -> list[Said]:
        """Take more output; return what is certain now, in the order in which it was written."""
        self._reader.feed(piece)
        return self._advance()

    def flush(self) -> list[Said]:
        """What was held back, at the end of the output."""
        self._reader.feed("", is_final=True)
        said = self._advance()
        self._writer.end()
        return [*said, *self._writer.taken()]

    def _advance(self) -> list[Said]:
        if not self._has_ended:
            try:
                next(self._steps)
            except StopIteration:
                self._has_ended = True
            except Done:
                self._has_ended = self.is_done = True
        return self._writer.taken()
