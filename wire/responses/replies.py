"""Answers of `/v1/responses`, for the documentation: answer.py makes plain dicts, and tests compare them with these."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Status = Literal["in_progress", "completed", "incomplete"]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class OutputText(_Shape):
    """The text of a message."""

    type: Literal["output_text"]
    text: str
    annotations: tuple[()] = ()
    logprobs: list[Any] | None = Field(default=None, description="of each token; absent if not asked for")


class OutputMessage(_Shape):
    """What the model says."""

    type: Literal["message"]
    id: str
    role: Literal["assistant"]
    status: Status
    content: list[OutputText]


class ReasoningText(_Shape):
    """Thoughts as the model wrote them."""

    type: Literal["reasoning_text"]
    text: str


class OutputReasoning(_Shape):
    """What the model thought before it answered."""

    type: Literal["reasoning"]
    id: str
    status: Status
    summary: list[Any] = Field(description="empty: thoughts are given as they are")
    content: list[ReasoningText]


class OutputCall(_Shape):
    """A call of a function; the client runs it and sends a `function_call_output` with its `call_id`."""

    type: Literal["function_call"]
    id: str
    call_id: str
    name: str
    namespace: str | None = Field(default=None, description="of the function; absent where it has none")
    arguments: str = Field(description="JSON")
    status: Status


OutputItem = Annotated[OutputMessage | OutputReasoning | OutputCall, Field(discriminator="type")]


class InputTokensDetails(_Shape):
    """What the prompt's tokens were."""

    cached_tokens: int = Field(description="read from the prefix cache")
    cache_write_tokens: Literal[0]


class OutputTokensDetails(_Shape):
    """What the answer's tokens were."""

    reasoning_tokens: int = Field(description="spent on thoughts")


class ResponseUsage(_Shape):
    """Token counts of one answer."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseError(_Shape):
    """Why an answer broke off."""

    code: Literal["server_error"]
    message: str


class IncompleteDetails(_Shape):
    """Why an answer is incomplete."""

    reason: Literal["max_output_tokens"]


class ResponseObject(_Shape):
    """A whole answer of `POST /v1/responses`; it repeats what the request asked for."""

    id: str
    object: Literal["response"]
    created_at: int = Field(description="Unix time")
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    error: ResponseError | None
    incomplete_details: IncompleteDetails | None
    model: str
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, Any]
    parallel_tool_calls: bool
    previous_response_id: None
    reasoning: dict[str, Any]
    service_tier: Literal["default"]
    store: Literal[False]
    temperature: float | None
    text: dict[str, Any]
    tool_choice: Any
    tools: list[Any]
    top_logprobs: int
    top_p: float | None
    truncation: Literal["disabled"]
    background: Literal[False]
    output: list[OutputItem]
    usage: ResponseUsage | None


class ResponseEvent(_Shape):
    """An event that has the whole response: created, in_progress, then completed, incomplete or failed."""

    type: Literal[
        "response.created", "response.in_progress", "response.completed", "response.incomplete", "response.failed"
    ]
    sequence_number: int = Field(description="counts the events of a stream from 0")
    response: ResponseObject


class ItemEvent(_Shape):
    """An item of the output begins or ends."""

    type: Literal["response.output_item.added", "response.output_item.done"]
    sequence_number: int
    output_index: int
    item: OutputItem


class PartEvent(_Shape):
    """The one part of a message or of reasoning begins or ends."""

    type: Literal["response.content_part.added", "response.content_part.done"]
    sequence_number: int
    item_id: str
    output_index: int
    content_index: Literal[0]
    part: OutputText | ReasoningText


class DeltaEvent(_Shape):
    """More of a text, of thoughts or of the arguments of a call."""

    type: Literal[
        "response.output_text.delta", "response.reasoning_text.delta", "response.function_call_arguments.delta"
    ]
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int | None = Field(default=None, description="absent for arguments")
    delta: str
    logprobs: list[Any] | None = Field(default=None, description="of the text's tokens")


class DoneEvent(_Shape):
    """A text, thoughts or arguments are complete."""

    type: Literal["response.output_text.done", "response.reasoning_text.done", "response.function_call_arguments.done"]
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int | None = Field(default=None, description="absent for arguments")
    text: str | None = Field(default=None, description="of a text or thoughts")
    name: str | None = Field(default=None, description="of the function")
    arguments: str | None = Field(default=None, description="of the call")
    logprobs: list[Any] | None = Field(default=None, description="of the text's tokens")


EVENTS: dict[str, type[_Shape]] = {
    **dict.fromkeys(("response.created", "response.in_progress"), ResponseEvent),
    **dict.fromkeys(("response.output_item.added", "response.output_item.done"), ItemEvent),
    **dict.fromkeys(("response.content_part.added", "response.content_part.done"), PartEvent),
    **{
        f"response.{what}.{when}": shape
        for when, shape in (("delta", DeltaEvent), ("done", DoneEvent))
        for what in ("output_text", "reasoning_text", "function_call_arguments")
    },
    **dict.fromkeys(("response.completed", "response.incomplete", "response.failed"), ResponseEvent),
}
