"""Body of `POST /v1/responses`."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from wire.model_names import MAX_MODEL_NAME_CHARS
from wire.openai.fields import Known
from wire.openai.tolerance import Tolerant
from wire.responses.fields import REASONING, RESPONSES, STREAM_OPTIONS, TEXT, TOOL
from wire.responses.items import InputItem
from wire.string_or_list import STRING_OR_LIST

MAX_ITEMS = 1024

JsonSchema = dict[str, Any]


class FunctionTool(Tolerant):
    """A function that the model may call."""

    known: ClassVar[Mapping[str, Known]] = TOOL

    type: Literal["function"]
    name: str = Field(min_length=1)
    description: str | None = None
    parameters: JsonSchema | None = Field(default=None, description="JSON schema of the arguments")
    strict: bool | None = None


class FunctionChoice(Tolerant):
    """The model shall call this function."""

    type: Literal["function"]
    name: str


class AllowedTools(Tolerant):
    """The model sees only these of the tools."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: tuple[FunctionChoice, ...] = Field(min_length=1, fail_fast=True)


class PlainFormat(Tolerant):
    """The text is free, or any JSON object."""

    type: Literal["text", "json_object"]


class SchemaFormat(Tolerant):
    """The text is JSON that the schema admits."""

    type: Literal["json_schema"]
    name: str
    schema_: JsonSchema = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


def _format_kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return "a schema" if kind == "json_schema" else "no schema"


Format = Annotated[
    Annotated[PlainFormat, Tag("no schema")] | Annotated[SchemaFormat, Tag("a schema")], Discriminator(_format_kind)
]


class TextOptions(Tolerant):
    """What the text of the answer is."""

    known: ClassVar[Mapping[str, Known]] = TEXT

    format: Format | None = None


class Reasoning(Tolerant):
    """How the model thinks."""

    known: ClassVar[Mapping[str, Known]] = REASONING

    effort: str | None = Field(default=None, description="`reasoning_effort` of a chat completion")


class StreamOptions(Tolerant):
    """Options of a stream."""

    known: ClassVar[Mapping[str, Known]] = STREAM_OPTIONS


Include = Literal["reasoning.encrypted_content", "message.output_text.logprobs"]


InputItems = Annotated[tuple[InputItem, ...], Field(min_length=1, max_length=MAX_ITEMS, fail_fast=True)]
Input = Annotated[Annotated[str, Tag("a string")] | Annotated[InputItems, Tag("a list")], STRING_OR_LIST]


class ResponsesRequest(Tolerant):
    """Body of `POST /v1/responses`. null means absent everywhere, as OpenAI clients expect. Answers are not kept, so a
    conversation is sent as a whole."""

    known: ClassVar[Mapping[str, Known]] = RESPONSES

    model: str = Field(min_length=1, max_length=MAX_MODEL_NAME_CHARS, description="name of the model")
    input: Input = Field(description="a message of the user, or the items of the conversation, oldest first")
    instructions: str | None = Field(default=None, description="a system message before the input")
    max_output_tokens: int | None = Field(default=None, ge=1, le=1_000_000, description="thoughts included")
    temperature: float | None = Field(default=None, ge=0, le=2, description="0: greedy")
    top_p: float | None = Field(default=None, gt=0, le=1)
    tools: tuple[FunctionTool, ...] = Field(
        default=(), max_length=128, fail_fast=True, description="functions; built-in tools are refused"
    )
    tool_choice: Literal["auto", "none", "required"] | FunctionChoice | AllowedTools | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: Reasoning | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20, description="beside each token of the text")
    include: tuple[Include, ...] = Field(
        default=(),
        max_length=16,
        fail_fast=True,
        description="logprobs of the text; encrypted reasoning is accepted and not used",
    )
    stream: bool | None = Field(default=None, description="answer as server-sent events")
    stream_options: StreamOptions | None = None
    metadata: dict[str, str] | None = Field(default=None, description="given back with the answer")

    @property
    def wants_logprobs(self) -> bool:
        """Whether the tokens of the text are to be listed with their log probabilities."""
        return bool(self.top_logprobs) or "message.output_text.logprobs" in self.include

    @property
    def output_format(self) -> PlainFormat | SchemaFormat:
        """The format of the answer's text."""
        given = self.text.format if self.text is not None else None
        return given or PlainFormat(type="text")
