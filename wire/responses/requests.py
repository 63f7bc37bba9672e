"""Body of `POST /v1/responses`."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from wire.chat import CacheSalt, DrawingFields, StopStrings
from wire.model_names import MAX_MODEL_NAME_CHARS
from wire.openai.messages import MAX_MESSAGES
from wire.openai.requests import TokenBound
from wire.openai.tolerance import Known, Tolerant
from wire.responses.fields import REASONING, RESPONSES, STREAM_OPTIONS, TEXT
from wire.responses.items import InputItem
from wire.responses.tools import Tool
from wire.string_or_list import STRING_OR_LIST
from wire.tools import MAX_TOOLS, choice_kind

JsonSchema = dict[str, Any]


class FunctionChoice(Tolerant):
    """The model shall call this function."""

    type: Literal["function"]
    name: str
    namespace: str | None = None


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


InputItems = Annotated[tuple[InputItem, ...], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
Input = Annotated[Annotated[str, Tag("a string")] | Annotated[InputItems, Tag("a list")], STRING_OR_LIST]


Choice = Annotated[
    Annotated[Literal["auto", "none", "required"], Tag("a word")]
    | Annotated[FunctionChoice, Tag("a function")]
    | Annotated[AllowedTools, Tag("allowed tools")],
    Discriminator(
        choice_kind,
        custom_error_type="unknown_choice",
        custom_error_message="must be auto, none, required, a function or allowed_tools: hosted tools are not run here",
    ),
]


class ResponsesRequest(Tolerant, DrawingFields):
    """Body of `POST /v1/responses`. null means absent everywhere, as OpenAI clients expect. Answers are not kept, so a
    conversation is sent as a whole."""

    known: ClassVar[Mapping[str, Known]] = RESPONSES

    model: str = Field(min_length=1, max_length=MAX_MODEL_NAME_CHARS, description="name of the model")
    input: Input = Field(description="a message of the user, or the items of the conversation, oldest first")
    instructions: str | None = Field(default=None, description="a system message before the input")
    max_output_tokens: TokenBound = Field(
        default=None, description="bound of the answer, thoughts included, cut to what fits"
    )
    stop: StopStrings | None = Field(default=None, description="a string or several, at which the answer ends")
    cache_salt: CacheSalt | None = Field(
        default=None, description="requests share cached prefixes only where these are equal"
    )
    tools: tuple[Tool, ...] = Field(
        default=(),
        max_length=MAX_TOOLS,
        fail_fast=True,
        description="functions, and namespaces of them; hosted tools (web_search, file_search, code_interpreter, "
        "image_generation, local_shell) are left out of the prompt, which the header X-Agon-Warning tells",
    )
    tool_choice: Choice | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: Reasoning | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20, description="beside each token of the text")
    include: tuple[str, ...] = Field(
        default=(),
        max_length=64,
        fail_fast=True,
        description="message.output_text.logprobs: those of the text; the others are of things that no answer has here",
    )
    stream: bool | None = Field(default=None, description="answer as server-sent events")
    stream_options: StreamOptions | None = None
    metadata: dict[str, Any] | None = Field(default=None, description="given back with the answer")

    @property
    def wants_logprobs(self) -> bool:
        """Whether the tokens of the text are to be listed with their log probabilities."""
        return bool(self.top_logprobs) or "message.output_text.logprobs" in self.include

    @property
    def output_format(self) -> PlainFormat | SchemaFormat:
        """The format of the answer's text."""
        given = self.text.format if self.text is not None else None
        return given or PlainFormat(type="text")
