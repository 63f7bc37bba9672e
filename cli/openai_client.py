"""A small OpenAI client for `agon chat` and `agon bench serve`: list models, stream a chat.

It reads with aiohttp and decodes with wire.sse, because a benchmark must measure the server and not the client: httpx
takes 158 us a chunk, aiohttp 34, on cores that the server may share.
"""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp

from cli.arena.running_arena import is_loopback, trusted
from cli.errors import CliError
from wire.chat import ChatMessage
from wire.errors import ApiError
from wire.sse import SseDecoder

CONNECT_TIMEOUT_S = 5.0


class OpenAiClient:
    """A server with the OpenAI API, its connections open. Made by `connect`, inside an event loop."""

    def __init__(self, session: aiohttp.ClientSession, base_url: str) -> None:
        self.base_url = base_url
        self._session = session

    async def __aenter__(self) -> "OpenAiClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._session.close()

    async def list_models(self) -> list[str]:
        """Names of the models served; raises CliError if no server answers or no model is served."""
        try:
            async with self._session.get(f"{self.base_url}/v1/models") as answer:
                body = await answer.read()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise CliError(f"no server answers at {self.base_url} ({error}). Is `agon up` running?") from None
        if answer.status != 200:
            raise CliError(_explain(answer, body))
        try:
            models = [str(row["id"]) for row in json.loads(body)["data"]]
        except (ValueError, KeyError, TypeError):
            raise CliError(f"{self.base_url} has no OpenAI API: its list of models is not understood.") from None
        if not models:
            raise CliError(f"{self.base_url} serves no model yet.")
        return models

    async def stream_chat(
        self, model: str, messages: Sequence[ChatMessage], **options: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """The chunks of one answer; raises CliError when the server refuses, fails or breaks off."""
        body = {
            "model": model,
            "messages": [message.model_dump() for message in messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            **{name: value for name, value in options.items() if value is not None},
        }
        try:
            async with self._session.post(f"{self.base_url}/v1/chat/completions", json=body) as answer:
                if answer.status != 200:
                    raise CliError(_explain(answer, await answer.read()))
                async for chunk in _chunks(answer):
                    yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise CliError(f"the connection to {self.base_url} broke: {error!r}") from None


def connect(url: str, api_key: str | None, timeout_s: float = 600.0) -> OpenAiClient:
    """A client for `url`, with or without /v1. Loopback addresses bypass the proxies of the environment. `timeout_s`
    bounds each wait for bytes."""
    base_url = url.rstrip("/").removesuffix("/v1")
    session = aiohttp.ClientSession(
        headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
        connector=aiohttp.TCPConnector(limit=0, ssl=trusted()),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=timeout_s),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=not is_loopback(base_url),
    )
    return OpenAiClient(session, base_url)


async def _chunks(answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """The objects of a stream up to its [DONE]; raises CliError for an error inside it, or if it ends before."""
    decoder = SseDecoder()
    async for piece in answer.content.iter_any():
        for event in decoder.feed(piece):
            if event.data == "[DONE]":
                return
            payload = json.loads(event.data)
            if "error" in payload:
                raise CliError(ApiError.from_body(payload).message)
            yield payload
    raise CliError("the stream ended before its answer was complete.")


def _explain(answer: aiohttp.ClientResponse, content: bytes) -> str:
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    if isinstance(body, dict) and "error" in body:
        return f"HTTP {answer.status}: {ApiError.from_body(body).message}"
    return f"HTTP {answer.status} from {answer.url}"
