"""The answer of another server: its stream of chunks as deltas, and how it ended. Raises Failure."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any

import httpx

from engine.sampling_params import ThoughtTags
from engine.text.thoughts import Said, ThoughtSplitter
from model_worker.remote.failures import broken, failed
from model_worker.remote.tools import called
from model_worker.tool_requests import wire_calls
from wire.answers import Delta, Finished, most_chars
from wire.chat import FinishReason, Usage
from wire.sse import SseDecoder

LAST_WORDS_S = 2.0  #: for usage and [DONE] after a finish reason; some servers never send them
MAX_EVENT_BYTES = 1 << 20  #: a longer event is garbage, which must not fill the memory or hold the event loop
#: A server that ignores the bound of an answer is cut off after so many events for each token of the bound.
_EVENTS_PER_TOKEN = 8
_SPARE_EVENTS = 512
_BYTES_PER_TOKEN = 4
#: Figures above these are no count of tokens: then our own estimate holds. A host may put instructions of its own
#: before a prompt, and count thoughts that it does not show.
_SPARE_PROMPT_TOKENS = 100_000
_SPARE_COMPLETION_TOKENS = 1_000_000

#: The other server's finish reasons that are more than "stop".
_FINISH: Mapping[str, FinishReason] = {"length": "length", "tool_calls": "tool_calls", "function_call": "tool_calls"}
_FILTERED = "content_filter"
_NOTHING = Said("", "")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class AnswerStream:
    """Reads one response. `num_prompt_bytes` and `max_tokens` are those of the request; `on_event` is called for every
    event and for every comment that keeps the connection alive."""

    def __init__(
        self, tags: ThoughtTags | None, *, num_prompt_bytes: int, max_tokens: int, on_event: Callable[[], None]
    ) -> None:
        self._splitter = ThoughtSplitter(tags) if tags is not None else None
        self._num_prompt_bytes = num_prompt_bytes
        self._max_events = _EVENTS_PER_TOKEN * max_tokens + _SPARE_EVENTS
        self._most_chars = most_chars(max_tokens)
        self._on_event = on_event
        self._num_events = 0
        self._num_deltas = 0
        self._num_bytes = 0
        self._num_chars = 0
        self._reason: str | None = None
        self._usage: dict[str, Any] | None = None
        self._has_calls = False
        self._has_content = False
        self.has_begun = False  #: a delta was given

    async def deltas(self, response: httpx.Response) -> AsyncGenerator[Delta, None]:
        """The deltas up to the end. Raises Failure for a stream that breaks off. Thoughts come in a field of their own,
        or between tags where the other server does not know them."""
        async for data in self._data(response):
            said = self._parse(data)
            if said.thoughts:
                self._splitter = None
            if said != _NOTHING:
                self._num_deltas += 1
                self._num_bytes += len((said.text + said.thoughts).encode())
            if self._splitter is not None:
                said = self._splitter.push(said.text)._replace(tool_calls=said.tool_calls)
            if said != _NOTHING:
                yield self._delta(said)
        if self._reason is None:
            raise failed("cut" if self._num_events else "no_events", may_pass=not self._num_events)
        rest = self._splitter.flush() if self._splitter is not None else _NOTHING
        if rest != _NOTHING:
            yield self._delta(rest)
        if self._reason == _FILTERED and not self._has_content:
            raise failed("content_filter")
        if not self._has_content:
            raise failed("empty_answer")

    def usage(self) -> Usage:
        """As the other server counted, or else by our own estimate: a token for each delta or four bytes, whichever is
        more, and for four bytes of the prompt."""
        estimates = (self._num_prompt_bytes // _BYTES_PER_TOKEN, self._num_bytes // _BYTES_PER_TOKEN)
        num_prompt = _count(self._usage, "prompt_tokens", self._num_prompt_bytes + _SPARE_PROMPT_TOKENS)
        num_completion = _count(self._usage, "completion_tokens", self._num_bytes + _SPARE_COMPLETION_TOKENS)
        is_estimated = num_prompt is None or num_completion is None
        num_prompt = estimates[0] if num_prompt is None else num_prompt
        num_completion = max(self._num_deltas, estimates[1]) if num_completion is None else num_completion
        details = self._usage.get("completion_tokens_details") if self._usage is not None else None
        num_thoughts = _count(details, "reasoning_tokens", num_completion) or 0
        return Usage.counted(num_prompt, num_completion, num_thoughts=num_thoughts, is_estimated=is_estimated)

    def finished(self) -> Finished:
        """The final event, after all deltas."""
        reason = _FINISH.get(self._reason or "", "stop")
        if self._has_calls and reason == "stop":  # as some servers say in spite of calls
            reason = "tool_calls"
        return Finished(finish_reason=reason, usage=self.usage())

    def _delta(self, said: Said) -> Delta:
        """Raises Failure for an answer that is much longer than was asked for."""
        self.has_begun = True
        self._has_calls |= bool(said.tool_calls)
        self._has_content |= bool(said.text.strip() or said.thoughts.strip() or said.tool_calls)
        delta = Delta(text=said.text, token_ids=(), thoughts=said.thoughts, tool_calls=wire_calls(said.tool_calls))
        self._num_chars += delta.num_chars
        if self._num_chars > self._most_chars:
            raise failed("endless")
        return delta

    async def _data(self, response: httpx.Response) -> AsyncGenerator[str, None]:
        """The data of each event up to the last one. After a finish reason, neither [DONE] nor a regular end of the
        connection is needed."""
        if not is_plain(response):
            raise failed("garbage")
        decoder, num_silent = SseDecoder(), 0
        chunks = response.aiter_bytes()
        while (chunk := await self._next(chunks)) is not None:
            self._on_event()
            events = decoder.feed(chunk)
            num_silent = 0 if events else num_silent + len(chunk)
            if num_silent > MAX_EVENT_BYTES:
                raise failed("garbage")
            for event in events:
                self._num_events += 1
                if event.data == "[DONE]":
                    return
                if self._num_events > self._max_events:
                    raise failed("endless")
                yield event.data

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        if self._reason is None:
            try:
                return await anext(chunks, None)
            except httpx.HTTPError as error:
                raise broken(error, has_begun=True) from None
        with contextlib.suppress(httpx.HTTPError, TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                return await anext(chunks, None)
        return None

    def _parse(self, data: str) -> Said:
        """Thoughts and text of one chunk; notes its finish reason and usage."""
        try:
            chunk = json.loads(data)
            if _SURROGATE.search(data):
                json.dumps(chunk, ensure_ascii=False).encode()  # half a pair is no text: UnicodeEncodeError
            if chunk.get("error"):
                raise failed("error_in_stream", may_pass=True)
            usage = chunk.get("usage")
            if isinstance(usage, dict):
                self._usage = usage
            if not chunk.get("choices"):
                return _NOTHING
            choice = chunk["choices"][0]
            reason = choice.get("finish_reason")
            self._reason = str(reason) if reason else self._reason
            if "delta" not in choice:
                return Said("", _text(choice.get("text")))
            delta = choice["delta"]
            said = _content(delta.get("content"))
            thoughts = _text(delta.get("reasoning_content") or delta.get("reasoning"))
            return Said(thoughts + said.thoughts, said.text, called(delta))
        except (ValueError, AttributeError, KeyError, TypeError, IndexError, RecursionError):
            raise failed("garbage") from None


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    raise ValueError("a text is needed")


def _content(content: Any) -> Said:
    """The content of a delta: a text, or parts of type text and thinking."""
    if not isinstance(content, list):
        return Said("", _text(content))
    texts = [_text(part.get("text")) for part in content if part["type"] == "text"]
    thinking = [_content(part.get("thinking")).text for part in content if part["type"] == "thinking"]
    return Said("".join(thinking), "".join(texts))


def _count(usage: Any, name: str, most: int) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else None


def is_plain(response: httpx.Response) -> bool:
    """Whether a body is sent as it is. A compressed one, which was not asked for, may be a thousand times as large."""
    encoding: str = response.headers.get("content-encoding", "identity")
    return encoding.strip().lower() == "identity"
