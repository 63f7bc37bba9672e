"""Body of `POST /v1/responses`."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from wire.lenient import STRING_OR_LIST, LenientFields
from wire.model_names import MAX_MODEL_NAME_CHARS
from wire.responses.items import InputItem

MAX_ITEMS = 1024

JsonSchema = dict[str, Any]


def _refused(reason: str) -> Any:
    def refuse(value: object) -> None:
        if value is not None:
            raise ValueError(f"not served: {reason}")

    return BeforeValidator(refuse)


class FunctionTool(LenientFields):
    """A function that the model may call."""

    type: Literal["function"]
    name: str = Field(min_length=1)
    description: str | None = None
    parameters: JsonSchema | None = Field(default=None, description="JSON schema of the arguments")
    strict: bool | None = None
    output_schema: JsonSchema | None = Field(default=None, description="accepted and not used")


class FunctionChoice(LenientFields):
    """The model shall call this function."""

    type: Literal["function"]
    name: str


class AllowedTools(LenientFields):
    """The model sees only these of the tools."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: tuple[FunctionChoice, ...] = Field(min_length=1, fail_fast=True)


class PlainFormat(LenientFields):
    """The text is free, or any JSON object."""

    type: Literal["text", "json_object"]


class SchemaFormat(LenientFields):
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


class TextOptions(LenientFields):
    """What the text of the answer is."""

    format: Format | None = None
    verbosity: Literal["medium"] | None = Field(default=None, description="only medium, which is the default")


class Reasoning(LenientFields):
    """How the model thinks."""

    effort: str | None = Field(default=None, description="`reasoning_effort` of a chat completion")
    summary: Any = Field(default=None, description="accepted and not used: thoughts are given as they are")
    generate_summary: Any = Field(default=None, description="accepted and not used")
    context: Any = Field(default=None, description="accepted and not used")
    mode: Literal["standard"] | None = None


class StreamOptions(LenientFields):
    """Options of a stream."""

    include_obfuscation: bool | None = Field(default=None, description="accepted and not used")


Include = Literal["reasoning.encrypted_content", "message.output_text.logprobs"]


InputItems = Annotated[tuple[InputItem, ...], Field(min_length=1, max_length=MAX_ITEMS, fail_fast=True)]
Input = Annotated[Annotated[str, Tag("a string")] | Annotated[InputItems, Tag("a list")], STRING_OR_LIST]


class ResponsesRequest(LenientFields):
    """Body of `POST /v1/responses`. null means absent everywhere, as OpenAI clients expect. Answers are not kept, so a
    conversation is sent as a whole."""

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
    truncation: Literal["disabled"] | None = Field(default=None, description="a too long input is refused")
    store: bool | None = Field(default=None, description="accepted and not used: answers are not kept")
    background: Literal[False] | None = Field(default=None, description="only false: nothing runs in the background")
    max_tool_calls: int | None = Field(default=None, description="accepted and not used: it counts built-in tools")
    user: str | None = Field(default=None, max_length=512, description="accepted and not used")
    safety_identifier: str | None = Field(default=None, max_length=512, description="accepted and not used")
    prompt_cache_key: str | None = Field(default=None, max_length=512, description="accepted and not used")
    prompt_cache_options: Any = Field(default=None, description="accepted and not used")
    prompt_cache_retention: Any = Field(default=None, description="accepted and not used")
    service_tier: str | None = Field(default=None, max_length=64, description="accepted and not used")
    previous_response_id: Annotated[None, _refused("answers are not kept; send the conversation as input")] = None
    conversation: Annotated[None, _refused("conversations are not kept; send the conversation as input")] = None
    prompt: Annotated[None, _refused("prompts are not kept; send instructions and input")] = None
    context_management: Annotated[None, _refused("nothing is left out of the input")] = None
    moderation: Annotated[None, _refused("there is no moderation")] = None

    @property
    def wants_logprobs(self) -> bool:
        """Whether the tokens of the text are to be listed with their log probabilities."""
        return bool(self.top_logprobs) or "message.output_text.logprobs" in self.include

    @property
    def output_format(self) -> PlainFormat | SchemaFormat:
        """The format of the answer's text."""
        given = self.text.format if self.text is not None else None
        return given or PlainFormat(type="text")
