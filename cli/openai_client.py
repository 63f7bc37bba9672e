"""The little of an OpenAI client that `agon chat` and `agon bench serve` need: list models, stream a chat.

The bytes are decoded by wire.sse, so what is measured is the server and not a client library.
"""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx

from cli.errors import CliError
from wire.chat import ChatMessage
from wire.errors import ApiError
from wire.sse import SseDecoder


def connect(url: str, api_key: str | None, timeout_s: float = 600.0) -> httpx.AsyncClient:
    """`url` with or without /v1. Loopback addresses bypass proxies from the environment."""
    base = url.rstrip("/").removesuffix("/v1")
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    is_local = httpx.URL(base).host in ("127.0.0.1", "localhost", "::1")
    timeout = httpx.Timeout(timeout_s, connect=5.0)
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=base, headers=headers, timeout=timeout, limits=limits, trust_env=not is_local)


async def list_models(client: httpx.AsyncClient) -> list[str]:
    """Names of the models served; raises CliError when nobody answers or nothing is served."""
    try:
        answer = await client.get("/v1/models")
    except httpx.HTTPError as error:
        raise CliError(f"no server answers at {client.base_url} ({error}). Is `agon up` running?") from None
    if answer.status_code != 200:
        raise CliError(_explain(answer))
    models = [row["id"] for row in answer.json()["data"]]
    if not models:
        raise CliError(f"{client.base_url} serves no model yet.")
    return models


async def stream_chat(
    client: httpx.AsyncClient, model: str, messages: Sequence[ChatMessage], **options: Any
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
        async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            if answer.status_code != 200:
                await answer.aread()
                raise CliError(_explain(answer))
            decoder = SseDecoder()
            async for chunk in answer.aiter_raw():
                for event in decoder.feed(chunk):
                    if event.data == "[DONE]":
                        return
                    payload = json.loads(event.data)
                    if "error" in payload:
                        raise CliError(ApiError.from_body(payload).message)
                    yield payload
    except httpx.HTTPError as error:
        raise CliError(f"the connection to {client.base_url} broke: {error!r}") from None
    raise CliError("the stream ended before its answer was complete.")


def _explain(answer: httpx.Response) -> str:
    try:
        body = answer.json()
    except ValueError:
        body = None
    if isinstance(body, dict) and "error" in body:
        return f"HTTP {answer.status_code}: {ApiError.from_body(body).message}"
    return f"HTTP {answer.status_code} from {answer.url}"
