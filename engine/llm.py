"""The engine as a library: prompts in, finished answers or vectors out, in the caller's thread. Names and shapes are
vLLM's.

Composes a core without a queue bound and steps it until every request has finished. Knows no HTTP and no asyncio.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from engine.adapter_info import AdapterInfo
from engine.config import EngineConfig, ModelLimits
from engine.errors import InvalidRequest
from engine.llm_beams import BeamSearchOutput, BeamSearchParams, BeamSearchSequence
from engine.llm_inputs import (
    LoRARequest,
    Messages,
    Prompt,
    list_of_conversations,
    list_of_prompts,
    one_per_prompt,
    read_prompt,
)
from engine.llm_outputs import (
    CompletionOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    RequestOutput,
    ScoringOutput,
    ScoringRequestOutput,
    completion,
    prompt_logprobs,
)
from engine.loaded_engine import LoadedEngine, load_engine
from engine.prompt_reading import cosine
from engine.request import Embedding, RequestDelta, merge_deltas
from engine.sampling_params import NO_OUTPUT, PoolingParams, SamplingParams
from engine.stats import EngineStats
from engine.text.bad_words import with_bad_words

if TYPE_CHECKING:
    from engine.model_info import ModelInfo
    from engine.text.tokenizer import Tokenizer


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
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = False,
        adapter: str | None = None,
        lora_request: LoRARequest | None = None,
    ) -> list[RequestOutput]:
        """Continue every prompt; results come in the order of the prompts.

        A prompt is a text, its token ids, {"prompt": text} or {"prompt_token_ids": ids}. A text is encoded with the
        special tokens that the tokenizer adds. `sampling_params` are one for all prompts or one per prompt; use_tqdm
        shows a progress bar. `adapter` is the name of an added one; lora_request also names its folder, from which a
        new one is added. Raises InvalidRequest (or ContextTooLong) before any work if a prompt can never be served.
        """
        read = [read_prompt(prompt, self.get_tokenizer) for prompt in list_of_prompts(prompts)]
        return self._generate(read, sampling_params, use_tqdm, self._adapter_of(adapter, lora_request))

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = False,
        adapter: str | None = None,
        lora_request: LoRARequest | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, object] | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation or several, each rendered with the model's own chat template.

        Messages are OpenAI's: a content is a text, text parts, or None beside tool calls. continue_final_message: go on
        with the last message, with add_generation_prompt False. tools: definitions of functions, which the template
        shows to the model, or the system message where the template knows none; its calls are part of the text.
        chat_template_kwargs: values for variables of the template, such as {"enable_thinking": False}. adapter,
        lora_request: as `generate`.

        Raises InvalidRequest as `generate` does, and for messages that the template rejects.
        """
        render = partial(
            self.get_tokenizer().render_chat,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
            chat_template_kwargs=chat_template_kwargs,
        )
        read: list[tuple[str | None, list[int]]] = [(None, render(one)) for one in list_of_conversations(messages)]
        return self._generate(read, sampling_params, use_tqdm, self._adapter_of(adapter, lora_request))

    def embed(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        pooling_params: PoolingParams | Sequence[PoolingParams] | None = None,
        use_tqdm: bool = False,
        adapter: str | None = None,
        lora_request: LoRARequest | None = None,
    ) -> list[EmbeddingRequestOutput]:
        """One vector for each prompt, pooled over its hidden states after the final norm: by default as the checkpoint
        says (`info.pooling`), else the last one's, of length 1. Raises InvalidRequest as `generate` does."""
        token_ids = [read_prompt(prompt, self.get_tokenizer)[1] for prompt in list_of_prompts(prompts)]
        each = one_per_prompt(pooling_params, self.info.pooling, len(token_ids))
        name = self._adapter_of(adapter, lora_request)
        for prompt in token_ids:
            self._core.admission.check_request(tuple(prompt), NO_OUTPUT)
        submits = [
            partial(self._core.add_pooling_request, prompt_token_ids=prompt, params=params, adapter=name)
            for prompt, params in zip(token_ids, each, strict=True)
        ]
        outputs = []
        finished = self._finish_all(submits, len(submits), use_tqdm)
        for (request_id, samples), prompt, params in zip(finished, token_ids, each, strict=True):
            found = Embedding.of_delta(samples[0], params)
            output = EmbeddingOutput(list(found.vector))
            outputs.append(EmbeddingRequestOutput(request_id, prompt, output, found.num_cached_tokens))
        return outputs

    def score(
        self,
        data_1: Prompt | Sequence[Prompt],
        data_2: Prompt | Sequence[Prompt],
        *,
        pooling_params: PoolingParams | None = None,
        use_tqdm: bool = False,
    ) -> list[ScoringRequestOutput]:
        """The cosine similarity of pairs: one text against each of several, or two lists of equal lengths. Raises
        InvalidRequest as `embed` does."""
        firsts, seconds = list_of_prompts(data_1), list_of_prompts(data_2)
        if len(firsts) not in (1, len(seconds)):
            raise InvalidRequest(f"data_1 has {len(firsts)} texts, data_2 {len(seconds)}", param="data_1")
        found = self.embed([*firsts, *seconds], pooling_params=pooling_params, use_tqdm=use_tqdm)
        others = found[len(firsts) :]
        ones = found[:1] * len(others) if len(firsts) == 1 else found[: len(firsts)]
        return [
            ScoringRequestOutput(
                other.request_id,
                one.prompt_token_ids + other.prompt_token_ids,
                ScoringOutput(cosine(one.outputs.embedding, other.outputs.embedding)),
                one.num_cached_tokens + other.num_cached_tokens,
            )
            for one, other in zip(ones, others, strict=True)
        ]

    def beam_search(self, prompts: Prompt | Sequence[Prompt], params: BeamSearchParams) -> list[BeamSearchOutput]:
        """Search for the likeliest continuations of every prompt. Raises InvalidRequest as `generate` does."""
        found = self.generate(prompts, params.sampling_params)
        return [BeamSearchOutput([self._hypothesis(result, output) for output in result.outputs]) for result in found]

    def _hypothesis(self, result: RequestOutput, output: CompletionOutput) -> BeamSearchSequence:
        assert output.cumulative_logprob is not None
        tokens = [*result.prompt_token_ids, *output.token_ids]
        text = self.get_tokenizer().decode(tokens)
        return BeamSearchSequence(tokens, text, output.cumulative_logprob, output.finish_reason, output.logprobs)

    def add_adapter(self, name: str, folder: str | Path) -> AdapterInfo:
        """Load the LoRA adapter in a PEFT folder. Raises AdapterError: it does not fit the model, does what is not
        supported, or max_adapters are loaded."""
        info = self._core.adapters.add(name, Path(folder))
        self._adapter_folders[name] = Path(folder)
        return info

    def remove_adapter(self, name: str) -> None:
        """Unload an adapter. Raises AdapterError for one that is not loaded."""
        self._core.adapters.remove(name, lambda: None)
        del self._adapter_folders[name]

    def _adapter_of(self, adapter: str | None, asked: LoRARequest | None) -> str:
        """The name of a loaded adapter; empty: the base. Raises InvalidRequest and AdapterError."""
        if asked is None:
            self._core.adapters.check(adapter or "")
            return adapter or ""
        if adapter is not None:
            raise InvalidRequest("one of adapter and lora_request names the adapter", param="lora_request")
        known = self._adapter_folders.get(asked.lora_name)
        if known is None:
            self.add_adapter(asked.lora_name, asked.lora_path)
        elif known != Path(asked.lora_path):
            raise InvalidRequest(f"the adapter {asked.lora_name!r} was loaded from {known}", param="lora_request")
        return asked.lora_name

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

    def get_tokenizer(self) -> "Tokenizer":
        """The model's tokenizer. Raises InvalidRequest where it has none."""
        return self._loaded.text_tokenizer

    @property
    def tokenizer(self) -> "Tokenizer":
        """See get_tokenizer."""
        return self.get_tokenizer()

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
        self._adapter_folders: dict[str, Path] = {}

    def _generate(
        self,
        read: list[tuple[str | None, list[int]]],
        params: SamplingParams | Sequence[SamplingParams] | None,
        use_tqdm: bool,
        adapter: str,
    ) -> list[RequestOutput]:
        """read: text and token ids of each prompt."""
        each = [self._encoded(its_params) for its_params in one_per_prompt(params, SamplingParams(), len(read))]
        for (_, token_ids), its_params in zip(read, each, strict=True):
            self._core.admission.check_request(tuple(token_ids), its_params)
            self._core.compiler.check(its_params, self._core.limits.max_model_len - len(token_ids))
        submits = [
            partial(self._core.add_request, prompt_token_ids=token_ids, params=its_params, adapter=adapter)
            for (_, token_ids), its_params in zip(read, each, strict=True)
        ]
        finished = self._finish_all(submits, sum(its_params.n for its_params in each), use_tqdm)
        return [
            RequestOutput(
                request_id=request_id,
                prompt=text,
                prompt_token_ids=token_ids,
                outputs=[completion(samples[index], self.get_tokenizer) for index in sorted(samples)],
                num_cached_tokens=samples[0].num_cached_tokens,
                prompt_logprobs=prompt_logprobs(samples[0].prompt_logprobs, self.get_tokenizer),
                error=next((sample.error for sample in samples.values() if sample.error), ""),
            )
            for (request_id, samples), (text, token_ids) in zip(finished, read, strict=True)
        ]

    def _finish_all(
        self, submits: Sequence[Callable[[str], None]], num_samples: int, use_tqdm: bool
    ) -> list[tuple[str, dict[int, RequestDelta]]]:
        """Submit requests, each under an id of its own, and step until they have finished. Returns their ids and, by
        sample, all deltas as one. num_samples: of all requests together."""
        first = self._num_requests
        self._num_requests += len(submits)
        parts: dict[str, dict[int, list[RequestDelta]]] = {str(first + index): {} for index in range(len(submits))}
        try:
            for request_id, submit in zip(parts, submits, strict=True):
                submit(request_id)
            with _Progress(num_samples, use_tqdm) as progress:
                while not self._core.is_idle:
                    deltas = self._core.step()
                    for delta in deltas:
                        parts[delta.request_id].setdefault(delta.index, []).append(delta)
                    progress.advance(sum(delta.finish_reason is not None for delta in deltas))
        except BaseException:  # KeyboardInterrupt too: the next call must find an idle engine
            self._core.abort_all()
            while not self._core.is_idle:
                self._core.step()
            raise
        return [
            (request_id, {index: merge_deltas(deltas) for index, deltas in samples.items()})
            for request_id, samples in parts.items()
        ]

    def _encoded(self, params: SamplingParams) -> SamplingParams:
        return with_bad_words(params, self.get_tokenizer().encode) if params.bad_words else params


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
