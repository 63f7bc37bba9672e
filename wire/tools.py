"""Tools that a model may call, and the calls in a conversation, in the shapes of the OpenAI API."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

MAX_TOOLS = 128

FunctionName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
CallId = Annotated[str, StringConstraints(min_length=1, max_length=128)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FunctionDefinition(_Part):
    """A function that the model may call."""

    name: FunctionName
    description: str | None = Field(default=None, description="when to call it, for the model")
    parameters: dict[str, Any] | None = Field(default=None, description="JSON schema of the arguments, an object")
    strict: bool | None = Field(default=None, description="arguments follow the schema exactly")


class ToolDefinition(_Part):
    """One tool of a request; functions are the only kind."""

    type: Literal["function"] = "function"
    function: FunctionDefinition


class CalledFunction(_Part):
    """The function of a call. `arguments` is JSON as the model wrote it."""

    name: FunctionName
    arguments: str = ""


class ToolCall(_Part):
    """A call of a tool in an earlier answer."""

    id: CallId
    type: Literal["function"] = "function"
    function: CalledFunction


class NamedFunction(_Part):
    """Which function must be called."""

    name: FunctionName


class NamedToolChoice(_Part):
    """The choice of one function."""

    type: Literal["function"] = "function"
    function: NamedFunction


ToolChoice = Literal["none", "auto", "required"] | NamedToolChoice
ToolDefinitions = Annotated[tuple[ToolDefinition, ...], Field(max_length=MAX_TOOLS, fail_fast=True)]
ToolCalls = Annotated[tuple[ToolCall, ...], Field(max_length=MAX_TOOLS, fail_fast=True)]
