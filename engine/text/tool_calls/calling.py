"""From what a request says of tools to what the model is told, how its answer is read, and what the answer must be."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from engine.errors import InvalidRequest
from engine.sampling_params import Constraint, ThoughtTags, ToolCallSyntax, ToolFormat, ToolFunction
from engine.text.tool_calls.grammars import CLOSED, MAX_CALLS, SpecialId, call_grammar, free_grammar

_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}


class ChatTokenizer(Protocol):
    """The part of a tokenizer that tells how an answer is read."""

    @property
    def tool_format(self) -> ToolFormat | None:
        """In what form the model calls tools; None: its template shows no known one."""
        ...

    def special_token_id(self, text: str) -> int | None:
        """The id of a special token; None: the text is none."""
        ...

    def thought_tags(self, prompt_ids: Sequence[int]) -> ThoughtTags:
        """Between which texts the model thinks when it answers this prompt."""
        ...

    def tool_call_syntax(
        self,
        prompt_ids: Sequence[int],
        *,
        tool_format: ToolFormat | None = None,
        functions: Sequence[ToolFunction] = (),
        is_single: bool = False,
        id_seed: str = "",
    ) -> ToolCallSyntax | None:
        """How the answer to this prompt is read."""
        ...


class AnswerForm(NamedTuple):
    """How an answer is read and what it must be: fields of SamplingParams."""

    thoughts: ThoughtTags | None
    tool_calls: ToolCallSyntax | None
    constraint: Constraint | None


@dataclass(frozen=True)
class ToolRequest:
    """The tools of a request, and whether they must be called."""

    tools: Sequence[Mapping[str, Any]] = ()  #: definitions of functions, as in OpenAI's API
    choice: Literal["auto", "none", "required"] | None = None  #: None: auto
    named: str | None = None  #: the one function that must be called
    is_parallel: bool = True  #: False: one call at most
    functions: tuple[ToolFunction, ...] = field(init=False)  #: that the answer may call

    def __post_init__(self) -> None:
        functions = tuple(_function(tool["function"]) for tool in self.tools)
        names = [function.name for function in functions]
        if repeated := next((name for name in names if names.count(name) > 1), None):
            raise InvalidRequest(f"two tools have the name {repeated}", param="tools")
        if self.named is not None and self.named not in names:
            raise InvalidRequest(f"tool_choice: no tool has the name {self.named}", param="tool_choice")
        if self.choice == "required" and not functions:
            raise InvalidRequest("tool_choice: required needs tools", param="tool_choice")
        object.__setattr__(self, "functions", () if self.choice == "none" else functions)

    @property
    def shown(self) -> Sequence[Mapping[str, Any]] | None:
        """The tools that the chat template tells the model of; none where it must not call any."""
        return self.tools if self.functions else None

    @property
    def is_single(self) -> bool:
        """Whether the answer ends after one call."""
        return not self.is_parallel or self.named is not None

    @property
    def is_forced(self) -> bool:
        """Whether the answer must be calls and nothing else."""
        return self.named is not None or self.choice == "required"

    def answer(
        self,
        tokenizer: ChatTokenizer,
        prompt_ids: Sequence[int],
        *,
        tool_format: ToolFormat | None = None,
        is_continued: bool = False,
    ) -> AnswerForm:
        """The form of the answer to this prompt. tool_format: instead of the one that the tokenizer tells.
        is_continued: the prompt has the beginning of the answer. Raises InvalidRequest."""
        chosen = tool_format or tokenizer.tool_format
        if self.functions and chosen is None:
            raise InvalidRequest("the form of this model's tool calls is not known: set --tool-format", param="tools")
        syntax = tokenizer.tool_call_syntax(
            prompt_ids, tool_format=chosen, functions=self.functions, is_single=self.is_single
        )
        constraint = None
        if self.is_forced and chosen is not None:
            if is_continued:
                raise InvalidRequest("tool_choice cannot force a call in a continued message", param="tool_choice")
            constraint = Constraint("grammar", self.grammar(chosen, tokenizer.special_token_id), chosen in CLOSED)
        elif chosen is not None and not is_continued and any(function.is_strict for function in self.functions):
            grammar = free_grammar(chosen, self.functions, tokenizer.special_token_id)
            constraint = Constraint("grammar", grammar, chosen in CLOSED) if grammar is not None else None
        # Harmony's messages tell thoughts from text.
        thoughts = None if chosen == "harmony" else tokenizer.thought_tags(prompt_ids)
        return AnswerForm(thoughts, syntax, constraint)

    def grammar(self, tool_format: ToolFormat, special_id: SpecialId) -> str:
        """The grammar of an answer that is forced to be calls (grammars.py). Raises InvalidRequest."""
        functions = [function for function in self.functions if self.named in (None, function.name)]
        return call_grammar(tool_format, functions, special_id, max_calls=1 if self.is_single else MAX_CALLS)


def _function(definition: Mapping[str, Any]) -> ToolFunction:
    schema = definition.get("parameters") or _NO_PARAMETERS
    if schema.get("type", "object") != "object" or not isinstance(schema.get("properties", {}), Mapping):
        raise InvalidRequest(f"the parameters of {definition['name']} must be an object's schema", param="tools")
    return ToolFunction(definition["name"], json.dumps(schema), is_strict=bool(definition.get("strict")))
