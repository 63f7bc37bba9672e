"""Worker <-> controller: registration, heartbeats, and the internal generation stream.

A worker is one model of one process: a process that serves several models registers each of them, all at its one URL.

The worker calls `POST /internal/workers` (register), `.../{worker_id}/heartbeat` and `DELETE .../{worker_id}` on the
controller; the controller calls `POST /internal/generate` on the worker. Both directions carry the worker token.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from wire.answers import Delta, Finished, PromptEcho, TokenLogprob, ToolCallDelta
from wire.chat import CacheSalt, ChatMessage, FinishReason, SamplingOptions, TemplateKwargs, TokenId, Usage
from wire.errors import ErrorDetail
from wire.ids import WorkerId
from wire.model_names import ModelName
from wire.tools import ToolChoice, ToolDefinitions

#: `asleep`: the model is not in memory; a request wakes it.
WorkerState = Literal["starting", "ready", "asleep", "draining"]
Processor = Literal["cpu", "gpu", "remote"]
#: How a model is asked in a conversation. `template`: as its chat template says, or as another server does it; `plain`:
#: it has none, and the operator has it asked by "User:" and "Assistant:"; `none`: not at all, it completes text.
ChatForm = Literal["template", "plain", "none"]


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelCard(_Frozen):
    """The model of a registration. `revision` is a digest of the checkpoint, so that votes name exact weights."""

    name: ModelName
    revision: str = Field(description="digest of the checkpoint")
    architecture: str
    num_parameters: int
    dtype: str
    context_length: int = Field(description="in tokens")
    can_resume: bool = Field(
        default=True, description="false: it gives no token ids, so a broken answer cannot be continued elsewhere"
    )
    runs_on: Processor | None = Field(default=None, description="what computes; remote: another service; null: unknown")
    chat: ChatForm = Field(
        default="template",
        description="how it is asked in chats and battles; plain: by `User:` and `Assistant:`, having no chat "
        "template; none: a base model, which completes text",
    )

    @property
    def can_chat(self) -> bool:
        """Whether it takes conversations, not only texts to complete."""
        return self.chat != "none"


class Capacity(_Frozen):
    """Limits of a worker: requests in its batch, requests in its queue, and tokens that its page pool holds."""

    max_running: int = Field(description="requests in one engine step")
    max_queued: int = Field(description="requests that may wait")
    kv_tokens: int = Field(description="tokens that the page pool holds")


class PageCounts(_Frozen):
    """Small pages of one layer type by state."""

    layer_type: str
    used: int
    evictable: int
    empty: int
    page_bytes: int


class Load(_Frozen):
    """The state of a worker, sent with every heartbeat. Fields that end in _total are counters since the start of the
    process, except kv_bytes_total and mirror_bytes_total, which are sizes."""

    running: int = Field(default=0, description="requests in the running batch")
    waiting: int = Field(default=0, description="requests in the queue")
    swapped: int = Field(default=0, description="waiting requests whose pages were moved to main memory")
    queued_tokens: int = Field(default=0, description="prompt tokens in the queue")
    tokens_per_s: float = Field(default=0.0, description="recent generation speed")
    kv_bytes_used: int = Field(default=0, description="bytes of the page pool that sequences hold")
    kv_bytes_saved: int = Field(default=0, description="more bytes that it would take if no two sequences shared pages")
    page_copies_total: int = Field(default=0, description="shared pages that were copied when a sequence wrote to them")
    kv_bytes_evictable: int = Field(default=0, description="bytes kept for reuse, free when needed")
    kv_bytes_total: int = Field(default=0, description="bytes of the page pool")
    mirror_bytes_used: int = Field(default=0, description="main memory that holds pages of swapped requests")
    mirror_bytes_total: int = Field(default=0, description="main memory for pages of swapped requests")
    steps_total: int = Field(default=0, description="engine steps")
    prompt_tokens_total: int = Field(default=0, description="prompt tokens taken in")
    generation_tokens_total: int = Field(default=0, description="tokens generated")
    prefix_query_tokens_total: int = Field(default=0, description="prompt tokens looked up in the prefix cache")
    prefix_hit_tokens_total: int = Field(default=0, description="prompt tokens found there")
    preemptions_total: int = Field(default=0, description="requests put back into the queue")
    swap_preemptions_total: int = Field(
        default=0, description="preemptions that moved pages to main memory; the others recompute"
    )
    swapped_bytes_total: int = Field(default=0, description="moved out and in")
    wake_s: float = Field(default=0.0, description="seconds that the last waking of the model took; 0: none yet")
    draft_proposals_total: int = Field(default=0, description="verifications of proposed tokens")
    draft_tokens_total: int = Field(default=0, description="proposed tokens that were verified")
    accepted_draft_tokens_total: int = Field(default=0, description="proposed tokens that were right")
    saved_steps_total: int = Field(default=0, description="steps that answers did not need because tokens were right")
    is_closed: bool = Field(
        default=False,
        description="a hosted model takes no request now: a limit is reached, or its server refuses every request",
    )
    pages: tuple[PageCounts, ...] = Field(default=(), fail_fast=True)


Percent = Annotated[int, Field(ge=0, le=100)]
#: A run of adjacent large pages: the layer type with the most of them (an index into PoolPicture.layer_types; None if
#: all are empty), then the used and the evictable share of their bytes. The rest is empty. Shares are rounded up, so
#: that a single page is visible.
PoolCell = tuple[Annotated[int, Field(ge=0)] | None, Percent, Percent]


class PoolPicture(_Frozen):
    """A page pool in address order, in cells of equal size."""

    layer_types: tuple[Annotated[str, Field(max_length=128)], ...] = Field(max_length=256)
    cells: tuple[PoolCell, ...] = Field(max_length=1024)

    @model_validator(mode="after")
    def _known_types(self) -> "PoolPicture":
        if any(which is not None and which >= len(self.layer_types) for which, _, _ in self.cells):
            raise ValueError("a cell names a layer type that is not listed")
        return self


class PoolView(_Frozen):
    """Answer of a worker's `GET /internal/pool`: its page pool now. `picture` is None if the worker has no pool."""

    kv_bytes_used: int
    kv_bytes_evictable: int
    kv_bytes_total: int
    pages: tuple[PageCounts, ...]
    picture: PoolPicture | None = None


class WorkerPool(_Frozen):
    """One entry of `GET /arena/pools`. Workers without a pool and workers that do not answer in time have no entry."""

    worker_id: str
    picture: PoolPicture


class RegisterRequest(_Frozen):
    """Body of `POST /internal/workers`. `boot_id` identifies one start of the process; registering again with the same
    one changes nothing."""

    boot_id: str = Field(min_length=8, max_length=64, description="names this start of the process")
    url: str = Field(description="where controllers reach the worker: http(s)://host[:port]")
    card: ModelCard
    capacity: Capacity
    state: WorkerState = "ready"
    version: str | None = Field(default=None, max_length=64, description="release of the worker; null: before 0.2")


class RegisterReply(_Frozen):
    """Answer to a registration. `epoch` grows with every registration of a new boot, so messages of earlier boots can
    be refused."""

    worker_id: WorkerId
    epoch: int = Field(description="grows with every registration of a new boot")
    heartbeat_s: float = Field(description="seconds between two heartbeats")
    lease_s: float = Field(description="seconds after which a silent worker gets no more work")


class HeartbeatRequest(_Frozen):
    """Body of `POST /internal/workers/{worker_id}/heartbeat`; it renews the registration of the worker."""

    epoch: int = Field(description="what the registration gave")
    state: WorkerState
    load: Load


class HeartbeatReply(_Frozen):
    """Answer to a heartbeat. `known` is false if the controller has no such worker: the worker registers again."""

    known: bool = Field(description="false: register again")


class WorkerView(_Frozen):
    """One row of the workers page and of `GET /arena/workers`. The last three are null without the admin token: a
    figure that moves with one answer tells visitors which models are in their battle."""

    worker_id: str
    model: str
    state: WorkerState
    card: ModelCard
    capacity: Capacity
    in_flight: int | None = Field(default=None, description="capacity leases at the worker; only for the admin")
    load: Load | None = Field(default=None, description="its last report; only for the admin")
    last_heartbeat_age_s: float | None = Field(default=None, description="age of that report; only for the admin")

    def without_figures(self) -> "WorkerView":
        """What every visitor may see: nothing in it changes while the worker answers, nor when a battle wakes it."""
        hidden = {"in_flight": None, "load": None, "last_heartbeat_age_s": None}
        capacity = self.capacity.model_copy(update={"kv_tokens": 0})  # not known before a model's first load
        state = "ready" if self.state == "asleep" else self.state
        return self.model_copy(update={**hidden, "capacity": capacity, "state": state})


class GenerateRequest(_Frozen):
    """Body of `POST /internal/generate`: one answer to produce. `resume_token_ids` were already emitted by another
    replica: the worker continues after them (token replay), so that the text of an interrupted answer goes on byte for
    byte."""

    request_id: str = Field(pattern=r"^[A-Za-z0-9._:-]{1,128}$")
    model: ModelName | None = Field(default=None, description="which model of the worker; null: its only one")
    epoch: int | None = Field(default=None, description="refuse the request unless the worker has this epoch")
    messages: tuple[ChatMessage, ...] | None = Field(
        default=None, fail_fast=True, min_length=1, description="either these or a prompt"
    )
    prompt: str | None = Field(default=None, description="a text to continue")
    prompt_token_ids: tuple[TokenId, ...] | None = Field(
        default=None, fail_fast=True, min_length=1, description="the tokens to continue, as they are"
    )
    tools: ToolDefinitions = Field(default=(), description="tools that the model may call")
    tool_choice: ToolChoice | None = Field(default=None, description="null: auto where there are tools")
    parallel_tool_calls: bool = Field(default=True, description="false: one call at most")
    add_generation_prompt: bool = Field(default=True, description="the chat template opens a new answer")
    continue_final_message: bool = Field(default=False, description="the last message is continued, not answered")
    add_special_tokens: bool | None = Field(
        default=None, description="whether the tokenizer adds its own, as at the beginning; null: only to a prompt"
    )
    truncate_prompt_tokens: int | None = Field(
        default=None, ge=-1, description="keep only so many tokens at the end of the prompt; -1: what the context holds"
    )
    return_prompt: bool = Field(default=False, description="the first delta has the prompt's text and tokens")
    chat_template_kwargs: TemplateKwargs = Field(
        default={},
        exclude_if=lambda kwargs: not kwargs,
        description="values for the model's chat template, beside the messages",
    )
    sampling: SamplingOptions = SamplingOptions()
    resume_token_ids: tuple[TokenId, ...] = Field(
        default=(), fail_fast=True, description="tokens that another replica has emitted: continued, not repeated"
    )
    cache_salt: CacheSalt = Field(
        default="", description="cached prefixes are shared only among requests of the same salt"
    )

    @model_validator(mode="after")
    def _one_input(self) -> "GenerateRequest":
        if sum(given is not None for given in (self.messages, self.prompt, self.prompt_token_ids)) != 1:
            raise ValueError("exactly one of messages, prompt and prompt_token_ids is needed")
        return self

    @property
    def num_samples(self) -> int:
        """How many answers are asked for."""
        return self.sampling.n or 1


class TokensRequest(_Frozen):
    """Body of `POST /internal/tokens`: the prompt of a request, or the text of tokens."""

    model: ModelName | None = Field(default=None, description="which model of the worker; null: its only one")
    epoch: int | None = Field(default=None, description="refuse the request unless the worker has this epoch")
    generate: GenerateRequest | None = Field(default=None, description="whose prompt; either this or token_ids")
    token_ids: tuple[TokenId, ...] | None = Field(
        default=None, fail_fast=True, min_length=1, description="tokens whose text is asked for"
    )

    @model_validator(mode="after")
    def _one_question(self) -> "TokensRequest":
        if (self.generate is None) == (self.token_ids is None):
            raise ValueError("exactly one of generate and token_ids is needed")
        return self


class TokensReply(_Frozen):
    """Answer of `POST /internal/tokens`."""

    token_ids: tuple[int, ...]
    text: str = Field(description="of all tokens, special ones included")
    pieces: tuple[str, ...] = Field(description="the text of each token")
    context_length: int = Field(description="of the model, in tokens")


class GenerateDelta(_Frozen):
    """SSE event `delta`; `seq` counts the deltas of this stream from 0. `text` may be empty while the model thinks, or
    while an incomplete character or a possible stop string is held back."""

    seq: int
    text: str
    token_ids: tuple[int, ...]
    thoughts: str = Field(default="", description="what the model thinks; all of it comes before the first text")
    index: int = Field(default=0, description="which sample of the request")
    logprobs: tuple[TokenLogprob, ...] | None = Field(
        default=None, description="one for each token id, where asked for"
    )
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = Field(
        default=None, description="in the first delta of sample 0, where asked for"
    )
    prompt: PromptEcho | None = Field(default=None, description="the prompt, before all else, where asked for")
    tool_calls: tuple[ToolCallDelta, ...] = Field(default=(), description="pieces of calls of tools")
    finish_reason: FinishReason | None = Field(
        default=None, description="in the last delta of each sample, where the request has several"
    )
    prompt_counts: tuple[int, int] | None = Field(
        default=None, description="tokens of the prompt, and those that the prefix cache had; in the first delta"
    )

    @classmethod
    def of(cls, seq: int, delta: Delta) -> "GenerateDelta":
        """`delta` as number `seq` of a stream. Called for every token."""
        has_lists = delta.logprobs is not None or delta.prompt_logprobs is not None or delta.prompt_counts is not None
        if not (has_lists or delta.index or delta.tool_calls or delta.prompt or delta.finish_reason):
            return cls(  # most are so: fewer fields take less time
                seq=seq, text=delta.text, token_ids=delta.token_ids, thoughts=delta.thoughts
            )
        return cls(
            seq=seq,
            text=delta.text,
            token_ids=delta.token_ids,
            thoughts=delta.thoughts,
            index=delta.index,
            logprobs=delta.logprobs,
            prompt_logprobs=delta.prompt_logprobs,
            prompt=delta.prompt,
            tool_calls=delta.tool_calls,
            finish_reason=delta.finish_reason,
            prompt_counts=delta.prompt_counts,
        )

    def delta(self) -> Delta:
        """The delta without its number. Called for every token."""
        return Delta(
            self.text,
            self.token_ids,
            self.thoughts,
            None,
            self.index,
            self.logprobs,
            self.prompt_logprobs,
            self.prompt,
            self.tool_calls,
            self.finish_reason,
            self.prompt_counts,
        )


class GenerateFinished(_Frozen):
    """SSE event `finished`, the last of its stream. `usage` counts all samples, and resumed tokens as completion
    tokens; `finish_reason` is that of sample 0."""

    finish_reason: FinishReason
    usage: Usage
    queue_s: float | None = Field(default=None, description="seconds of the request in the worker's queue")

    def finished(self) -> Finished:
        """The end as the services pass it on."""
        return Finished(self.finish_reason, self.usage, self.queue_s)


class GenerateFailed(_Frozen):
    """SSE event `failed`, the last of its stream."""

    error: ErrorDetail
