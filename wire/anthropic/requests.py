"""Bodies of `POST /v1/messages` and `POST /v1/messages/count_tokens`."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, StringConstraints, Tag, model_validator

from wire.anthropic.blocks import Content, Texts
from wire.anthropic.client_tools import CLIENT_TOOLS
from wire.anthropic.context_edits import ContextManagement
from wire.anthropic.fields import CLIENT_TOOL, COUNT_TOKENS, MESSAGE, MESSAGES, OUTPUT_CONFIG, THINKING, TOOL
from wire.chat import MAX_STOP_CHARS, MAX_STOP_STRINGS, MAX_TOKENS, DrawingFields, TemplateKwargs
from wire.model_names import MAX_MODEL_NAME_CHARS
from wire.openai.messages import MAX_MESSAGES
from wire.openai.tolerance import Known, Tolerant, refused
from wire.tools import MAX_TOOLS, FunctionName

#: Claude Code has other words for messages of the user.
_ROLES = {"ctx": "user", "msg": "user"}
_UNFIT = {"user": ("thinking", "redacted_thinking", "tool_use"), "assistant": ("tool_result",)}

JsonSchema = dict[str, Any]


class OutputFormat(Tolerant):
    """The text of the answer is JSON that the schema admits."""

    type: Literal["json_schema"]
    schema_: JsonSchema = Field(alias="schema")


class OutputConfig(Tolerant):
    """How the model answers."""

    known: ClassVar[Mapping[str, Known]] = OUTPUT_CONFIG

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = Field(
        default=None, description="`reasoning_effort` of a chat completion"
    )
    format: OutputFormat | None = None


class MessageParam(Tolerant):
    """One message of the conversation. Results of tools are blocks of the user's messages."""

    known: ClassVar[Mapping[str, Known]] = MESSAGE

    role: Annotated[
        Literal["user", "assistant", "system"],
        BeforeValidator(lambda value: _ROLES.get(value, value) if isinstance(value, str) else value),
    ]
    content: Content = ""
    clear_at: Literal["next_user_message", "never"] | None = Field(
        default=None, description="of a system message: next_user_message leaves it out once the user has gone on"
    )
    output_config: OutputConfig | None = Field(
        default=None, description="of a system message: its effort holds instead of the request's"
    )

    @model_validator(mode="after")
    def _blocks_fit_role(self) -> "MessageParam":
        unfit = _UNFIT.get(self.role, ("thinking", "redacted_thinking", "tool_use", "tool_result"))
        for block in self.content:
            if not isinstance(block, str) and block.type in unfit:
                raise ValueError(f"a message of the {self.role} has no block of type {block.type}")
        return self


class Tool(Tolerant):
    """A tool that the client runs. Tools that the server would run are refused."""

    known: ClassVar[Mapping[str, Known]] = TOOL
    may_be_empty: ClassVar[frozenset[str]] = frozenset({"description"})

    type: Literal["custom"] = "custom"
    name: FunctionName
    description: str | None = None
    input_schema: JsonSchema = Field(description="JSON schema of the input")
    strict: bool | None = None


class ClientTool(Tolerant):
    """A tool that the client runs and whose input Anthropic defines: bash, the text editor, the memory."""

    known: ClassVar[Mapping[str, Known]] = CLIENT_TOOL

    type: str = Field(description=", ".join(f"`{kind}`" for kind in CLIENT_TOOLS))
    name: FunctionName | None = Field(default=None, description="absent: the name that Anthropic gave it")
    strict: bool | None = None


def _tool_kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return "of the client" if kind in CLIENT_TOOLS else "custom tool"


def _served_tool(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind != "custom" and kind not in CLIENT_TOOLS:
        raise refused("type", f"tools of type {kind[:60]!r} are not run here: give one of your own that does the same.")
    return value


AnyTool = Annotated[
    Annotated[Tool, Tag("custom tool")] | Annotated[ClientTool, Tag("of the client")],
    Discriminator(_tool_kind),
    BeforeValidator(_served_tool),
]


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
    """adaptive, between_tools: the model thinks as long as it likes; disabled: it does not, if its chat template can
    say so."""

    known: ClassVar[Mapping[str, Known]] = THINKING

    type: Literal["adaptive", "between_tools", "disabled"]


def _thinking_kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return "a budget" if kind == "enabled" else "no budget"


Thinking = Annotated[
    Annotated[ThinkingEnabled, Tag("a budget")] | Annotated[ThinkingMode, Tag("no budget")],
    Discriminator(_thinking_kind),
]


class _Conversation(Tolerant):
    """What a prompt is made of."""

    known: ClassVar[Mapping[str, Known]] = COUNT_TOKENS

    model: str = Field(min_length=1, max_length=MAX_MODEL_NAME_CHARS, description="name of the model")
    messages: tuple[MessageParam, ...] = Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)
    system: Texts | None = None
    tools: tuple[AnyTool, ...] = Field(default=(), max_length=MAX_TOOLS, fail_fast=True)
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = Field(default=None, description="absent: as the model's chat template does by itself")
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = Field(default=None, description="former name of output_config.format")
    context_management: ContextManagement | None = Field(
        default=None,
        description="clear_tool_uses_20250919 and clear_thinking_20251015: what is left out of the prompt",
    )
    chat_template_kwargs: TemplateKwargs | None = Field(
        default=None, description="values for the model's chat template (vLLM)"
    )


class CountTokensRequest(_Conversation):
    """Body of `POST /v1/messages/count_tokens`."""


StopString = Annotated[str, StringConstraints(min_length=1, max_length=MAX_STOP_CHARS)]


class MessagesRequest(_Conversation, DrawingFields):
    """Body of `POST /v1/messages`. null means absent everywhere."""

    known: ClassVar[Mapping[str, Known]] = MESSAGES

    max_tokens: Annotated[int, AfterValidator(lambda value: min(value, MAX_TOKENS)), Field(ge=1)] = Field(
        description="bound of the answer, thoughts included, cut to what fits"
    )
    stop_sequences: tuple[StopString, ...] = Field(default=(), max_length=MAX_STOP_STRINGS, fail_fast=True)
    stream: bool | None = Field(default=None, description="answer as server-sent events")
