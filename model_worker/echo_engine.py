"""An engine without a model: it repeats the user's words, one token per word, at a chosen speed. A message that begins
with <think> makes it think.

Tests of controllers, user interfaces and the worker run on it: no torch, deterministic tokens, a bounded queue, pages
that fill and empty, token replay, and on demand an answer that breaks off.
"""

import asyncio
import math
import re
import zlib
from collections.abc import AsyncGenerator, Sequence
from itertools import cycle

from engine.text.thoughts import DEFAULT_TAGS, Said, ThoughtSplitter
from model_worker.engine_protocol import Accepted, Conversation, Piece, Prompt, PromptSource
from wire.answers import Delta, Finished, PromptEcho, TokenLogprob, TopLogprob
from wire.chat import FinishReason, SamplingOptions, Usage
from wire.embeddings import PoolingFields
from wire.errors import ApiError, ErrorCode
from wire.workers import Capacity, Load, ModelCard, PageCounts, PoolPicture

_WORD = re.compile(r"\s*\S+|\s+$")
_PAGE_TOKENS = 16
_PAGE_BYTES = 1024


class EchoEngine:
    """Token i of an answer is a function of the prompt and i alone, so that tests notice lost and repeated tokens."""

    def __init__(
        self,
        *,
        model_name: str = "echo",
        tokens_per_s: float = 50.0,
        num_tokens: int | None = None,
        fail_after: int | None = None,
        context_length: int = 4096,
        max_running: int = 64,
        max_queued: int = 256,
        default_max_tokens: int = 2048,
    ) -> None:
        self.card = ModelCard(
            name=model_name,
            revision="echo-1",
            architecture="Echo",
            num_parameters=0,
            dtype="none",
            context_length=context_length,
        )
        self.capacity = Capacity(max_running=max_running, max_queued=max_queued, kv_tokens=max_running * context_length)
        self._token_s = 1.0 / tokens_per_s
        self._num_tokens = num_tokens
        self._fail_after = fail_after
        self._default_max_tokens = default_max_tokens
        self._running = asyncio.Semaphore(max_running)
        self._num_running = 0
        self._num_waiting = 0
        self._num_queued_tokens = 0
        self._num_pages = max_running * context_length // _PAGE_TOKENS
        self._num_pages_used = 0
        self._counters = Load()
        self._is_alive = True

    @property
    def hosting(self) -> None:
        """None: it computes itself."""
        return None

    @property
    def operators(self) -> None:
        """None: nothing is computed."""
        return None

    @property
    def is_alive(self) -> bool:
        """True until `shutdown`."""
        return self._is_alive

    def tokenise(self, source: PromptSource, *, add_special_tokens: bool | None = None) -> Prompt:
        """One token per word, its id a hash of the word. There are no special tokens."""
        if isinstance(source, tuple):
            return Prompt(source=source, token_ids=source)
        if not isinstance(source, str) and source.tool_choice not in (None, "auto", "none"):
            raise ApiError(ErrorCode.UNSUPPORTED_PARAMETER, "The echo engine calls no tools.", param="tool_choice")
        texts = (source,) if isinstance(source, str) else tuple(message.content for message in source.messages)
        token_ids = tuple(_token_id(word) for text in texts for word in _WORD.findall(text))
        tags = None if isinstance(source, str) else DEFAULT_TAGS
        return Prompt(source=source, token_ids=token_ids or (0,), thoughts=tags)

    def echo(self, prompt: Prompt) -> PromptEcho:
        """Its words; token ids that were given as such are words of digits."""
        words = _words_of(prompt)
        return PromptEcho("".join(words), prompt.token_ids, TopLogprob(prompt.token_ids[0], 0.0, words[0]))

    def token_texts(self, token_ids: Sequence[int]) -> tuple[str, ...]:
        """Its digits: words are not found by their ids."""
        return tuple(f" {token_id}" for token_id in token_ids)

    async def generate(
        self,
        prompt: Prompt,
        sampling: SamplingOptions,
        *,
        request_id: str,
        resume_token_ids: tuple[int, ...] = (),
        cache_salt: str = "",
    ) -> AsyncGenerator[Piece, None]:
        """As Engine.generate. One word per delta, at the speed given to the constructor, however many answers run. No
        prefix is kept, so `cache_salt` changes nothing."""
        words, finish_reason = self._answer(prompt, sampling)
        token_ids = tuple(_token_id(word) for word in words)
        if token_ids[: len(resume_token_ids)] != resume_token_ids:
            raise ApiError(ErrorCode.INVALID_REQUEST, "This is not how the answer began.", param="resume_token_ids")
        if self._num_waiting >= self.capacity.max_queued:
            raise ApiError(ErrorCode.QUEUE_FULL, "The queue is full.", retry_after_s=1.0)
        loop = asyncio.get_running_loop()
        arrived = loop.time()
        await self._wait_for_turn(len(prompt.token_ids))
        pages = 0
        splitter = ThoughtSplitter(prompt.thoughts) if prompt.thoughts is not None else None
        if splitter is not None:
            splitter.push("".join(words[: len(resume_token_ids)]))
        num_thoughts = 0
        num_samples = sampling.n or 1
        of_prompt = _prompt_logprobs(prompt, sampling.prompt_logprobs)
        try:
            started = loop.time()
            self._count(prompt_tokens_total=len(prompt.token_ids))
            yield Accepted()
            for index in range(len(resume_token_ids), len(words)):
                if not self._is_alive:
                    yield Finished(finish_reason="abort", usage=Usage.counted(len(prompt.token_ids), index))
                    return
                if index == self._fail_after:
                    raise ApiError(ErrorCode.WORKER_FAILED, "The engine broke off the answer.")
                due = started + (index + 1 - len(resume_token_ids)) * self._token_s
                await asyncio.sleep(max(0.0, due - loop.time()))
                wanted = -(-(len(prompt.token_ids) + index + 1) // _PAGE_TOKENS)
                self._num_pages_used += wanted - pages
                pages = wanted
                self._count(steps_total=1, generation_tokens_total=1)
                is_last = index == len(words) - 1
                said = _said(splitter, words[index], is_last=is_last)
                num_thoughts += bool(said.thoughts)
                for sample in range(num_samples):
                    yield Delta(
                        text=said.text,
                        token_ids=(token_ids[index],),
                        queue_s=started - arrived,
                        thoughts=said.thoughts,
                        index=sample,
                        logprobs=_logprobs([words[index]], sampling.logprobs),
                        prompt_logprobs=of_prompt if sample == 0 else None,
                        finish_reason=finish_reason if is_last and num_samples > 1 else None,
                        prompt_counts=(len(prompt.token_ids), 0) if index == len(resume_token_ids) else None,
                    )
                of_prompt = None
            if of_prompt is not None:
                yield Delta("", (), prompt_logprobs=of_prompt)
            usage = Usage.counted(
                len(prompt.token_ids), num_samples * len(words), num_thoughts=num_samples * num_thoughts
            )
            yield Finished(finish_reason=finish_reason, usage=usage)
        finally:
            self._num_pages_used -= pages
            self._num_running -= 1
            self._running.release()

    async def embed(
        self, token_ids: tuple[int, ...], pooling: PoolingFields, *, request_id: str, cache_salt: str = ""
    ) -> tuple[float, ...]:
        """As Engine.embed: a point on a circle, which depends on the tokens alone."""
        if not self._is_alive:
            raise ApiError(ErrorCode.WORKER_FAILED, "The engine has stopped.")
        angle = zlib.crc32(repr(token_ids).encode())
        return (math.cos(angle), math.sin(angle))[: pooling.dimensions]

    def load(self) -> Load:
        """Its pages are numbers only: each answer in progress uses as many as its tokens would fill."""
        used = self._num_pages_used
        return self._counters.model_copy(
            update={
                "running": self._num_running,
                "waiting": self._num_waiting,
                "queued_tokens": self._num_queued_tokens,
                "tokens_per_s": self._num_running / self._token_s,
                "kv_bytes_used": used * _PAGE_BYTES,
                "kv_bytes_total": self._num_pages * _PAGE_BYTES,
                "pages": (
                    PageCounts(
                        layer_type="echo",
                        used=used,
                        evictable=0,
                        empty=self._num_pages - used,
                        page_bytes=_PAGE_BYTES,
                    ),
                ),
            }
        )

    async def picture(self) -> PoolPicture | None:
        """None: there is no pool to show."""
        return None

    async def shutdown(self) -> None:
        """Every answer in progress ends with finish reason "abort" at its next word."""
        self._is_alive = False

    async def _wait_for_turn(self, num_tokens: int) -> None:
        self._num_waiting += 1
        self._num_queued_tokens += num_tokens
        try:
            await self._running.acquire()
        finally:
            self._num_waiting -= 1
            self._num_queued_tokens -= num_tokens
        self._num_running += 1

    def _answer(self, prompt: Prompt, sampling: SamplingOptions) -> tuple[list[str], FinishReason]:
        """The words of the whole answer, known in advance."""
        said = _last_said(prompt)
        words = _WORD.findall(said) or ["..."]
        room = self.card.context_length - len(prompt.token_ids)
        limit = min(room, self._default_max_tokens if sampling.max_tokens is None else sampling.max_tokens)
        if room < (sampling.max_tokens != 0):
            raise ApiError(
                ErrorCode.CONTEXT_LENGTH_EXCEEDED,
                f"the prompt has {len(prompt.token_ids)} tokens; with at least one of output, only "
                f"{self.card.context_length} fit",
                param="messages",
            )
        wanted = limit if sampling.ignore_eos else self._num_tokens or len(words)
        answer = [
            word if index < len(words) else " " + word.lstrip() for index, word in zip(range(wanted), cycle(words))
        ]
        finish_reason: FinishReason = "stop" if not sampling.ignore_eos else "length"
        if len(answer) > limit:
            answer, finish_reason = answer[:limit], "length"
        text = "".join(answer)
        stops = [position for stop in sampling.stop or () if (position := text.find(stop)) >= 0]
        if stops:
            answer, finish_reason = _WORD.findall(text[: min(stops)]), "stop"
            if sampling.include_stop_str_in_output:
                answer.append(min((text.find(stop), stop) for stop in sampling.stop or () if stop in text)[1])
        return answer, finish_reason

    def _count(self, **increments: int) -> None:
        old = self._counters
        self._counters = old.model_copy(update={name: getattr(old, name) + by for name, by in increments.items()})


def _words_of(prompt: Prompt) -> list[str]:
    match prompt.source:
        case str() as text:
            return _WORD.findall(text) or [""]
        case tuple() as token_ids:
            return [f" {token_id}" for token_id in token_ids]
        case conversation:
            return [word for message in conversation.messages for word in _WORD.findall(message.content)] or [""]


def _last_said(prompt: Prompt) -> str:
    """What is repeated: the whole prompt, or the last message."""
    if isinstance(prompt.source, Conversation):
        return prompt.source.messages[-1].content
    return "".join(_words_of(prompt))


def _logprobs(words: list[str], wanted: int | None) -> tuple[TokenLogprob, ...] | None:
    """Each word is certain; others are said to be the less likely the later they come."""
    if wanted is None:
        return None
    return tuple(
        TokenLogprob(
            _token_id(word),
            0.0,
            word,
            top=tuple(
                TopLogprob(_token_id(f"{word}{rank}"), -10.0 * rank, f"{word}{rank or ''}") for rank in range(wanted)
            ),
        )
        for word in words
    )


def _other(word: str, rank: int) -> TopLogprob:
    text = f"{word}{rank or ''}"
    return TopLogprob(_token_id(text), -10.0 * rank, text)


def _prompt_logprobs(prompt: Prompt, wanted: int | None) -> tuple[TokenLogprob | None, ...] | None:
    entries = _logprobs(_words_of(prompt), wanted)
    return None if entries is None else (None, *entries[1:])


def _said(splitter: ThoughtSplitter | None, word: str, *, is_last: bool) -> Said:
    if splitter is None:
        return Said("", word)
    said = splitter.push(word)
    rest = splitter.flush() if is_last else Said("", "")
    return Said(said.thoughts + rest.thoughts, said.text + rest.text)


def _token_id(word: str) -> int:
    return zlib.crc32(word.strip().encode()) % 50_000
