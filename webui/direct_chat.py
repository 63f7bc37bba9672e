"""A conversation with one model: a frozen value and the actions on it. No Gradio, and nothing is rated.

Only the visitor's page and browser store the transcript; the controller receives OpenAI requests.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from webui import sentences, texts
from webui.batches import batches
from webui.client import ControllerClient, StreamLost
from webui.controllers import ControllerUnreachable
from webui.visitors import Visitor
from wire.chat import ChatMessage, SamplingOptions
from wire.errors import ApiError


@dataclass(frozen=True, slots=True)
class Chat:
    """Prompts and answers in turn; the last answer may be missing or unfinished."""

    messages: tuple[ChatMessage, ...] = ()
    is_streaming: bool = False
    is_asked: bool = False  #: the request is still to be sent
    notice: str | None = None
    unsent_text: str | None = None  #: a prompt that was not taken: the page puts it back into the box

    def to_storage(self) -> list[list[str]]:
        """Role, content and thoughts, if any, of each message, as JSON values for the browser's storage."""
        return [
            [message.role, message.content, *filter(None, [message.reasoning_content])] for message in self.messages
        ]

    def stopped(self) -> "Chat":
        """The chat after its stream was cancelled; the text so far stays."""
        return replace(self, is_streaming=False, is_asked=False)

    def without_last_exchange(self) -> "Chat":
        """The last prompt goes back into the box to be changed."""
        prompts = [index for index, message in enumerate(self.messages) if message.role == "user"]
        if not prompts:
            return self
        return Chat(self.messages[: prompts[-1]], unsent_text=self.messages[prompts[-1]].content)


Chats = AsyncGenerator[Chat, None]


def from_storage(stored: Any) -> Chat:
    """The chat from the browser's storage; empty if the value is no transcript."""
    try:
        return Chat(tuple(_message(*parts) for parts in stored or ()))
    except (ValueError, TypeError):
        return Chat()


@dataclass(frozen=True, slots=True)
class DirectChats:
    """The actions of direct chat, bound to a controller. Holds no visitor's state."""

    client: ControllerClient
    update_interval_s: float
    max_prompt_chars: int = 8000

    def begin(self, chat: Chat, content: str, model: str | None) -> Chat:
        """Show the prompt; `follow` then answers it."""
        content = content.strip()
        if not content or chat.is_streaming:
            return chat
        if len(content) > self.max_prompt_chars:
            return replace(chat, notice=sentences.too_long(len(content), self.max_prompt_chars), unsent_text=content)
        if not model:
            return replace(chat, notice=texts.CHOOSE_MODEL, unsent_text=content)
        asked = (*chat.messages, ChatMessage(role="user", content=content))
        return replace(_with_answer(asked, "", is_streaming=True), is_asked=True)

    def begin_again(self, chat: Chat, model: str | None) -> Chat:
        """Answer the last prompt again."""
        shorter = chat.without_last_exchange()
        if shorter.unsent_text is None or not model or chat.is_streaming:
            return chat
        return self.begin(Chat(shorter.messages), shorter.unsent_text, model)

    async def follow(self, chat: Chat, model: str, sampling: SamplingOptions, visitor: Visitor) -> Chats:
        """Stream the answer of a chat whose request is still to be sent. Any other chat is yielded unchanged, so that a
        request is sent once."""
        if not chat.is_asked:
            yield chat
            return
        asked, text, thoughts = chat.messages[:-1], "", ""
        yield replace(chat, is_asked=False)
        try:
            pieces = self.client.chat(model, asked, sampling, visitor)
            async with aclosing(batches(pieces, self.update_interval_s)) as gathered:
                async for batch in gathered:
                    text += "".join(piece.content or "" for piece in batch)
                    thoughts += "".join(piece.reasoning_content or "" for piece in batch)
                    yield _with_answer(asked, text, thoughts, is_streaming=True)
            yield _with_answer(asked, text, thoughts, is_streaming=False)
        except ApiError as error:
            yield _failed(asked, text, thoughts, sentences.failure(error.code))
        except ControllerUnreachable:
            yield _failed(asked, text, thoughts, texts.UNREACHABLE)
        except StreamLost:
            yield _failed(asked, text, thoughts, texts.STREAM_LOST_DIRECT)


def _message(role: Any, content: Any, thoughts: Any = None) -> ChatMessage:
    return ChatMessage(role=role, content=content, reasoning_content=thoughts)


def _with_answer(asked: tuple[ChatMessage, ...], text: str, thoughts: str = "", *, is_streaming: bool) -> Chat:
    return Chat((*asked, _message("assistant", text, thoughts or None)), is_streaming)


def _failed(asked: tuple[ChatMessage, ...], text: str, thoughts: str, sentence: str) -> Chat:
    """Text that has arrived stays; without any, the prompt goes back into the box."""
    if text or thoughts:
        return replace(_with_answer(asked, text, thoughts, is_streaming=False), notice=sentence)
    return Chat(asked[:-1], notice=sentence, unsent_text=asked[-1].content)
