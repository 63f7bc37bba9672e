"""Tools that a model may call, and the calls in a conversation, in the shapes of the OpenAI API."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, StringConstraints, Tag

from wire.openai.fields import CACHE, CALL
from wire.openai.tolerance import Known, Tolerant, accepted, refused

MAX_TOOLS = 512

FunctionName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]
CallId = Annotated[str, StringConstraints(min_length=1, max_length=1024)]


def _function(value: object) -> object:
    if isinstance(value, str) and value != "function":
        raise refused("", f"{value[:40]!r} is not served: only functions are; describe it as a function of your own.")
    return value


def _json_text(value: object) -> object:
    """Arguments as text: some clients keep what they have parsed."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


FunctionType = Annotated[Literal["function"], BeforeValidator(_function)]


class FunctionDefinition(Tolerant):
    """A function that the model may call."""

    known: ClassVar[Mapping[str, Known]] = {**CACHE, **accepted("the model sees all tools", "defer_loading")}
    may_be_empty: ClassVar[frozenset[str]] = frozenset({"parameters", "description"})

    name: FunctionName
    description: str | None = Field(default=None, description="when to call it, for the model")
    parameters: dict[str, Any] | None = Field(default=None, description="JSON schema of the arguments, an object")
    strict: bool | None = Field(default=None, description="arguments follow the schema exactly")


class ToolDefinition(Tolerant):
    """One tool of a request; functions are the only kind."""

    known: ClassVar[Mapping[str, Known]] = FunctionDefinition.known

    type: FunctionType = "function"
    function: FunctionDefinition


class CalledFunction(Tolerant):
    """The function of a call. `arguments` is JSON as the model wrote it, or what it wrote in its place."""

    known: ClassVar[Mapping[str, Known]] = CALL

    name: str = Field(max_length=1024)
    arguments: Annotated[str, BeforeValidator(_json_text)] = ""


class ToolCall(Tolerant):
    """A call of a tool in an earlier answer."""

    known: ClassVar[Mapping[str, Known]] = CALL

    id: CallId
    type: FunctionType = "function"
    function: CalledFunction


class NamedFunction(Tolerant):
    """Which function must be called."""

    name: FunctionName


class NamedToolChoice(Tolerant):
    """The choice of one function."""

    type: Literal["function"] = "function"
    function: NamedFunction


class AllowedTools(Tolerant):
    """The tools that the model sees, of those in the request."""

    mode: Literal["auto", "required"]
    tools: tuple[NamedToolChoice, ...] = Field(min_length=1, max_length=MAX_TOOLS, fail_fast=True)


class AllowedToolsChoice(Tolerant):
    """A choice among some of the tools."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


def choice_kind(value: Any) -> str | None:
    """Tag of a choice of tools; the tags are no part of a field's path (wire/strict_json.py)."""
    kind = value.get("type", "function") if isinstance(value, dict) else getattr(value, "type", None)
    if isinstance(value, str):
        return "a word"
    return {"function": "a function", "allowed_tools": "allowed tools"}.get(kind) if isinstance(kind, str) else None


ToolChoice = Literal["none", "auto", "required"] | NamedToolChoice
RequestedChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("a word")]
    | Annotated[NamedToolChoice, Tag("a function")]
    | Annotated[AllowedToolsChoice, Tag("allowed tools")],
    Discriminator(
        choice_kind,
        custom_error_type="unknown_choice",
        custom_error_message="must be none, auto, required, a function or allowed_tools",
    ),
]
ToolDefinitions = Annotated[tuple[ToolDefinition, ...], Field(max_length=MAX_TOOLS, fail_fast=True)]
ToolCalls = Annotated[tuple[ToolCall, ...], Field(max_length=MAX_TOOLS, fail_fast=True)]
