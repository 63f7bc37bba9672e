"""The engine as a library: prompts in, finished texts out, in the caller's thread. The outputs have vLLM's fields.

Composes a core without a queue bound and steps it until every request has finished. Knows no HTTP and no asyncio.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from engine.config import EngineConfig, ModelLimits, SamplingParams
from engine.core import LoadedEngine, load_engine
from engine.llm_beams import BeamSearchOutput, BeamSearchParams, BeamSearchSequence
from engine.request import FinishReason, RequestDelta, TokenLogprob, merge_deltas
from engine.stats import EngineStats
from engine.text.bad_words import with_bad_words

if TYPE_CHECKING:
    from engine.model_info import ModelInfo
    from engine.text.tokenizer import Tokenizer

Prompt = str | Sequence[int]  #: a text, or its token ids
Messages = Sequence[Mapping[str, str]]  #: a conversation: role and content of each message


@dataclass(frozen=True, slots=True)
class Logprob:
    """Log probability of one token at one position; rank 1 is the likeliest token, None: not among the top k."""

    logprob: float
    rank: int | None
    decoded_token: str


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One sample of a prompt. token_ids include a stop token or the tokens of a stop string; the text does not."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None
    logprobs: list[dict[int, Logprob]] | None  #: per token: the k likeliest tokens and the sampled one
    finish_reason: FinishReason
    thoughts: str = ""  #: apart from the text where SamplingParams.thoughts names their tags


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """One prompt and its n samples."""

    request_id: str
    prompt: str | None  #: the text, where the prompt was given as one
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    num_cached_tokens: int
    #: One for each token of the prompt: itself and the k likeliest tokens; None for the first token.
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None


class LLM:
    """A model loaded in this process. Not thread-safe."""

    def __init__(self, model: str, **settings: Any) -> None:
        """`model` is a folder in Hugging Face layout or a hub id; `settings` are further fields of EngineConfig.

        Raises ValueError for a setting that is not allowed and CheckpointError for a model that cannot be loaded.
        """
        self._serve(load_engine(EngineConfig(model, **settings), has_queue_bound=False))

    @classmethod
    def from_config(cls, config: EngineConfig) -> Self:
        """Load the model that a whole configuration names."""
        return cls.around(load_engine(config, has_queue_bound=False))

    @classmethod
    def around(cls, loaded: LoadedEngine) -> Self:
        """An LLM around an engine that the caller composed, without a queue bound."""
        llm = cls.__new__(cls)
        llm._serve(loaded)
        return llm

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_progress_bar: bool = False,
    ) -> list[RequestOutput]:
        """Continue every prompt; results come in the order of the prompts.

        A text is encoded with the special tokens that the tokenizer adds. `params` is one for all prompts or one per
        prompt. Raises InvalidRequest (or ContextTooLong) before any work if a prompt can never be served.
        """
        texts = _list_of_prompts(prompts)
        token_ids = [
            self.tokenizer.encode(prompt, add_special_tokens=True) if isinstance(prompt, str) else list(prompt)
            for prompt in texts
        ]
        given = [prompt if isinstance(prompt, str) else None for prompt in texts]
        return self._run(given, token_ids, params, use_progress_bar)

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        chat_template_kwargs: Mapping[str, object] | None = None,
        use_progress_bar: bool = False,
    ) -> list[RequestOutput]:
        """Answer one conversation or several, each rendered with the model's own chat template.

        chat_template_kwargs: values for variables of the template, such as {"enable_thinking": False}.

        Raises InvalidRequest as `generate` does, and for messages that the template rejects.
        """
        conversations = _list_of_conversations(messages)
        token_ids = [
            self.tokenizer.render_chat(conversation, chat_template_kwargs=chat_template_kwargs or {})
            for conversation in conversations
        ]
        return self._run([None] * len(token_ids), token_ids, params, use_progress_bar)

    def beam_search(self, prompts: Prompt | Sequence[Prompt], params: BeamSearchParams) -> list[BeamSearchOutput]:
        """Search for the likeliest continuations of every prompt. Raises InvalidRequest as `generate` does."""
        found = self.generate(prompts, params.sampling_params)
        return [BeamSearchOutput([self._hypothesis(result, output) for output in result.outputs]) for result in found]

    def _hypothesis(self, result: RequestOutput, output: CompletionOutput) -> BeamSearchSequence:
        assert output.cumulative_logprob is not None
        tokens = [*result.prompt_token_ids, *output.token_ids]
        text = self.tokenizer.decode(tokens)
        return BeamSearchSequence(tokens, text, output.cumulative_logprob, output.finish_reason, output.logprobs)

    def stats(self) -> EngineStats:
        """A snapshot of the engine's counters."""
        return self._core.stats()

    def close(self) -> None:
        """Free the model. No method may be called afterwards."""
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def tokenizer(self) -> "Tokenizer":
        """The model's tokenizer. Raises InvalidRequest where it has none."""
        return self._loaded.text_tokenizer

    @property
    def info(self) -> "ModelInfo":
        """Architecture, parameters, dtypes and operators of the loaded model."""
        return self._loaded.info

    @property
    def limits(self) -> ModelLimits:
        """Limits of one request; max_model_len is the model's context or, if smaller, what the page pool holds."""
        return self._core.limits

    def _serve(self, loaded: LoadedEngine) -> None:
        self._loaded = loaded
        self._core = loaded.core
        self._num_requests = 0

    def _run(
        self,
        texts: list[str | None],
        token_ids: list[list[int]],
        params: SamplingParams | Sequence[SamplingParams] | None,
        use_progress_bar: bool,
    ) -> list[RequestOutput]:
        each = [self._encoded(its_params) for its_params in _one_per_prompt(params, len(token_ids))]
        for prompt, its_params in zip(token_ids, each, strict=True):
            self._core.admission.check_request(tuple(prompt), its_params)
            self._core.compiler.check(its_params)
        first = self._num_requests
        self._num_requests += len(token_ids)
        request_ids = [str(first + index) for index in range(len(token_ids))]
        try:
            for request_id, prompt, its_params in zip(request_ids, token_ids, each, strict=True):
                self._core.add_request(request_id, prompt, its_params)
            gathered = self._gather(sum(its_params.n for its_params in each), use_progress_bar)
        except BaseException:  # KeyboardInterrupt too: the next call must find an idle engine
            self._core.abort_all()
            while not self._core.is_idle:
                self._core.step()
            raise
        return [
            RequestOutput(
                request_id=request_id,
                prompt=text,
                prompt_token_ids=prompt,
                outputs=[self._completion(gathered[request_id, index]) for index in range(its_params.n)],
                num_cached_tokens=gathered[request_id, 0].num_cached_tokens,
                prompt_logprobs=self._prompt_logprobs(gathered[request_id, 0]),
            )
            for request_id, text, prompt, its_params in zip(request_ids, texts, token_ids, each, strict=True)
        ]

    def _encoded(self, params: SamplingParams) -> SamplingParams:
        return with_bad_words(params, self.tokenizer.encode) if params.bad_words else params

    def _gather(self, num_samples: int, use_progress_bar: bool) -> dict[tuple[str, int], RequestDelta]:
        """Step until everything has finished; all deltas of each sample as one."""
        parts: dict[tuple[str, int], list[RequestDelta]] = {}
        with _Progress(num_samples, use_progress_bar) as progress:
            while not self._core.is_idle:
                deltas = self._core.step()
                for delta in deltas:
                    parts.setdefault((delta.request_id, delta.index), []).append(delta)
                progress.advance(sum(delta.finish_reason is not None for delta in deltas))
        return {key: merge_deltas(deltas) for key, deltas in parts.items()}

    def _completion(self, whole: RequestDelta) -> CompletionOutput:
        assert whole.finish_reason is not None
        logprobs = whole.logprobs
        return CompletionOutput(
            index=whole.index,
            text=whole.text,
            token_ids=list(whole.token_ids),
            cumulative_logprob=whole.cumulative_logprob,
            logprobs=None if logprobs is None else [self._logprobs_at(entry) for entry in logprobs],
            finish_reason=whole.finish_reason,
            thoughts=whole.thoughts,
        )

    def _prompt_logprobs(self, whole: RequestDelta) -> list[dict[int, Logprob] | None] | None:
        if whole.prompt_logprobs is None:
            return None
        return [None if entry is None else self._logprobs_at(entry) for entry in whole.prompt_logprobs]

    def _logprobs_at(self, entry: TokenLogprob) -> dict[int, Logprob]:
        decode = self.tokenizer.decode
        by_id = {
            token_id: Logprob(logprob, rank, decode([token_id], skip_special_tokens=False))
            for rank, (token_id, logprob) in enumerate(entry.top, start=1)
        }
        if entry.token_id not in by_id:
            text = decode([entry.token_id], skip_special_tokens=False)
            by_id[entry.token_id] = Logprob(entry.logprob, None, text)
        return by_id


class _Progress:
    """A progress bar over finished samples, or nothing."""

    def __init__(self, total: int, is_shown: bool) -> None:
        self._bar: Any = None
        if is_shown:
            from rich.progress import Progress

            self._bar = Progress()
            self._task = self._bar.add_task("samples", total=total)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, count: int) -> None:
        if self._bar is not None:
            self._bar.advance(self._task, count)


def _list_of_prompts(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)):
        return [prompts]  # type: ignore[list-item]  # a sequence of integers is one prompt
    return list(prompts)  # type: ignore[arg-type]


def _list_of_conversations(messages: Messages | Sequence[Messages]) -> list[Messages]:
    if messages and isinstance(messages[0], Mapping):
        return [messages]  # type: ignore[list-item]  # a sequence of messages is one conversation
    return list(messages)  # type: ignore[arg-type]


def _one_per_prompt(params: SamplingParams | Sequence[SamplingParams] | None, count: int) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * count
    if len(params) != count:
        raise ValueError(f"{count} prompts, but {len(params)} sampling params")
    return list(params)
