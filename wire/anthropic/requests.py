"""Bodies of `POST /v1/messages` and `POST /v1/messages/count_tokens`."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator

from wire.anthropic.blocks import Content, Texts
from wire.anthropic.fields import CONVERSATION, MESSAGES, THINKING, TOOL
from wire.chat import MAX_STOP_CHARS, MAX_STOP_STRINGS
from wire.model_names import MAX_MODEL_NAME_CHARS
from wire.openai.fields import Known
from wire.openai.tolerance import Tolerant

MAX_MESSAGES = 1024

JsonSchema = dict[str, Any]


class MessageParam(Tolerant):
    """One message of the conversation. Results of tools are blocks of the user's messages."""

    role: Literal["user", "assistant"]
    content: Content

    @model_validator(mode="after")
    def _blocks_fit_role(self) -> "MessageParam":
        if isinstance(self.content, str):
            return self
        kinds = {block.type for block in self.content}
        unfit = kinds - ({"text", "tool_result"} if self.role == "user" else kinds - {"tool_result"})
        if unfit:
            raise ValueError(f"a message of the {self.role} has no block of type {min(unfit)}")
        return self


class Tool(Tolerant):
    """A tool that the client runs. Tools that the server would run are refused."""

    known: ClassVar[Mapping[str, Known]] = TOOL

    type: Literal["custom"] = "custom"
    name: str = Field(min_length=1)
    description: str | None = None
    input_schema: JsonSchema = Field(description="JSON schema of the input")
    strict: bool | None = None


class ToolChoice(Tolerant):
    """auto: the model chooses; any: some tool; tool: the one of this name; none: no tool."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = Field(default=None, description="only with type tool")
    disable_parallel_tool_use: bool = Field(default=False, description="at most one call")

    @model_validator(mode="after")
    def _name_fits_type(self) -> "ToolChoice":
        if (self.type == "tool") != (self.name is not None):
            raise ValueError("a name is needed with type tool, and only there")
        return self


class ThinkingEnabled(Tolerant):
    """The model thinks, for at most so many tokens."""

    known: ClassVar[Mapping[str, Known]] = THINKING

    type: Literal["enabled"]
    budget_tokens: int = Field(ge=1, le=1_000_000)


class ThinkingMode(Tolerant):
    """adaptive: the model thinks as long as it likes; disabled: it does not, if its chat template can say so."""

    known: ClassVar[Mapping[str, Known]] = THINKING

    type: Literal["adaptive", "disabled"]


def _thinking_kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return "a budget" if kind == "enabled" else "no budget"


Thinking = Annotated[
    Annotated[ThinkingEnabled, Tag("a budget")] | Annotated[ThinkingMode, Tag("no budget")],
    Discriminator(_thinking_kind),
]


class OutputFormat(Tolerant):
    """The text of the answer is JSON that the schema admits."""

    type: Literal["json_schema"]
    schema_: JsonSchema = Field(alias="schema")


class OutputConfig(Tolerant):
    """How the model answers."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = Field(
        default=None, description="`reasoning_effort` of a chat completion; max is xhigh"
    )
    format: OutputFormat | None = None


class _Conversation(Tolerant):
    """What a prompt is made of."""

    known: ClassVar[Mapping[str, Known]] = CONVERSATION

    model: str = Field(min_length=1, max_length=MAX_MODEL_NAME_CHARS, description="name of the model")
    messages: tuple[MessageParam, ...] = Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)
    system: Texts | None = None
    tools: tuple[Tool, ...] = Field(default=(), max_length=128, fail_fast=True)
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = Field(default=None, description="absent: as the model's chat template does by itself")
    output_config: OutputConfig | None = None


class CountTokensRequest(_Conversation):
    """Body of `POST /v1/messages/count_tokens`."""


StopString = Annotated[str, StringConstraints(min_length=1, max_length=MAX_STOP_CHARS)]


class MessagesRequest(_Conversation):
    """Body of `POST /v1/messages`. null means absent everywhere."""

    known: ClassVar[Mapping[str, Known]] = MESSAGES

    max_tokens: int = Field(ge=1, le=1_000_000, description="bound of the answer, thoughts included")
    temperature: float | None = Field(default=None, ge=0, le=2, description="0: greedy")
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=0, le=1_000_000)
    stop_sequences: tuple[StopString, ...] = Field(default=(), max_length=MAX_STOP_STRINGS, fail_fast=True)
    stream: bool | None = Field(default=None, description="answer as server-sent events")
