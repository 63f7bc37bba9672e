"""The actions of a visitor in a chat, without the page: ask, try again, edit, resume, stop, begin anew.

An action takes a session and yields new ones, as in a battle (webui/battle/turn.py): `begin` shows the question and
makes the chat, `follow` sends the request and follows its stream. This module does not know Gradio.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace

from webui import sentences, texts
from webui.answers import StreamEvent
from webui.batches import batches
from webui.chat.session import ChatBookmark, ChatSession, from_view
from webui.client import ControllerClient
from webui.controllers import ControllerUnreachable, is_elsewhere
from webui.turn_streams import StreamLost
from webui.visitors import Visitor
from wire.battles import BattleSampling
from wire.chats import AnswerAgain, AskChat, ChatView, CreateChat
from wire.errors import ApiError, ErrorCode
from wire.ids import ChatId

#: Another page has gone on with the chat.
_GONE_ON_CODES = frozenset({ErrorCode.BATTLE_BUSY, ErrorCode.STALE_TURN})
_MAX_AWAY_S = 60.0  #: longest wait for a controller that can begin a chat
_RETRY_S = 0.5
_READ_DELAYS_S = (0.3, 0.7, 1.0, 2.0, 3.0)

ChatSessions = AsyncGenerator[ChatSession, None]


@dataclass(frozen=True, slots=True)
class ChatTurns:
    """The actions, bound to a controller. Holds no visitor's state."""

    client: ControllerClient
    update_interval_s: float
    max_prompt_chars: int = 8000

    async def begin(
        self, session: ChatSession, content: str, model: str | None, sampling: BattleSampling | None, visitor: Visitor
    ) -> ChatSessions:
        """Show the question and make a chat for it if there is none. Ends with a session for `follow`, or with the
        question back in the box."""
        content = content.strip()
        if not content or session.is_busy:
            yield session
            return
        for text in (content, session.system_prompt):
            if len(text) > self.max_prompt_chars:
                yield session.ended(sentences.too_long(len(text), self.max_prompt_chars), unsent_text=content)
                return
        if not model:
            yield session.ended(texts.CHOOSE_MODEL, unsent_text=content)
            return
        current = session.asking(content, model, sampling)
        yield current
        give_up_at = time.monotonic() + _MAX_AWAY_S
        while current.chat_id is None:
            try:
                request = CreateChat(model=model, system_prompt=session.system_prompt, sampling=sampling)
                view = await self.client.create_chat(request, visitor)
                current = replace(current, chat_id=view.id, max_turns=view.max_turns)
                yield current  # from now on a reloaded page finds the chat
            except ValueError:  # no name of a model
                yield session.ended(texts.CHOOSE_MODEL, unsent_text=content)
                return
            except (ApiError, ControllerUnreachable) as error:
                if not is_elsewhere(error) or time.monotonic() > give_up_at:
                    yield session.ended(sentence_of(error), unsent_text=content)
                    return
                yield replace(current, notice=texts.ARENA_AWAY)
                await asyncio.sleep(_RETRY_S)

    def begin_again(self, session: ChatSession, model: str | None, sampling: BattleSampling | None) -> ChatSession:
        """Answer the last question again, with the model that is chosen now."""
        if session.is_busy or not session.shown or not model:
            return session
        return session.asking_again(model, sampling)

    async def take_up(self, bookmark: ChatBookmark, visitor: Visitor) -> ChatSession:
        """What a reloaded page shows. A question that the controller never got is sent by `follow`."""
        new = ChatSession(model=bookmark.model, system_prompt=bookmark.system_prompt)
        if bookmark.chat_id is None:
            return replace(new, unsent_text=bookmark.asked)
        session = await self.restore(bookmark.chat_id, visitor, bookmark.model)
        asked, number = bookmark.asked, bookmark.number
        if asked is None or session.can_resume:
            return session if asked is None else replace(session, unsent_text=asked)
        if session.chat_id is None or bookmark.model is None:
            return replace(session, unsent_text=asked)
        if len(session.exchanges) >= number > 0:
            if session.exchanges[number - 1].content == asked:
                return session
            return replace(session, notice=texts.CHAT_WENT_ON, unsent_text=asked)  # another page's question
        if session.is_busy:
            return replace(session, unsent_text=asked)
        return session.asking(asked, bookmark.model)

    async def restore(self, chat_id: ChatId, visitor: Visitor, model: str | None = None) -> ChatSession:
        """The whole chat as the controller has it. `follow` resumes it if a turn is still running."""
        try:
            return from_view(await self._read(chat_id, visitor), model=model)
        except (ApiError, ControllerUnreachable) as error:
            if isinstance(error, ApiError) and error.code is ErrorCode.CHAT_NOT_FOUND:
                return ChatSession(model=model, notice=texts.CHAT_GONE)
            return ChatSession(chat_id=chat_id, model=model, notice=sentence_of(error), can_resume=True)

    async def _read(self, chat_id: ChatId, visitor: Visitor) -> ChatView:
        """The chat, read again for a while if no controller can answer."""
        for delay_s in _READ_DELAYS_S:
            try:
                return await self.client.chat(chat_id, visitor)
            except (ApiError, ControllerUnreachable) as error:
                if not is_elsewhere(error):
                    raise
            await asyncio.sleep(delay_s)
        return await self.client.chat(chat_id, visitor)

    async def follow(self, session: ChatSession, visitor: Visitor) -> ChatSessions:
        """Send the pending request and follow its stream to the end. Any other session is yielded unchanged, so that a
        request is sent once."""
        if session.pending is None or session.chat_id is None:
            yield session
            return
        current = replace(session, pending=None, unsent_text=None)
        yield current
        try:
            events = self._pending_events(session, session.chat_id, visitor)
            async with aclosing(batches(events, self.update_interval_s)) as gathered:
                async for batch in gathered:
                    current = current.after(batch)
                    if current.refusal_code is not None:
                        break
                    yield current
            if current.refusal_code is not None:
                yield await self._untaken(session, _failure(current.refusal_code), visitor)
        except (ApiError, ControllerUnreachable) as error:
            if session.pending != "resume" and isinstance(error, ApiError) and error.code in _GONE_ON_CODES:
                async with aclosing(self._gone_on(session, error.code, visitor)) as sessions:
                    async for current in sessions:
                        yield current
            else:
                yield await self._untaken(session, sentence_of(error), visitor)
        except StreamLost:
            yield current.ended(texts.CHAT_STREAM_LOST, can_resume=True)

    async def _untaken(self, session: ChatSession, sentence: str, visitor: Visitor) -> ChatSession:
        """The chat without the turn that was to begin; its question goes back into the box, unless the chat has it."""
        assert session.chat_id is not None
        asked = session.exchanges[-1].content
        before = await self.restore(session.chat_id, visitor, session.model)
        if before.chat_id is None:
            return replace(before, unsent_text=asked)
        if before.can_resume:  # it cannot be read now
            before = replace(session, exchanges=session.exchanges[:-1]) if session.pending == "turn" else session
        ended = before.ended(sentence)
        if session.pending == "turn":
            return replace(ended, unsent_text=asked)
        is_changed = bool(ended.exchanges) and ended.exchanges[-1].content != asked
        return replace(ended, is_editing=is_changed, unsent_text=asked if is_changed else None)

    async def _gone_on(self, session: ChatSession, code: ErrorCode, visitor: Visitor) -> ChatSessions:
        """The chat, with which another page has gone on, to the end of the turn that runs. Then the question of this
        page goes back into the box, unless it is the one that was answered."""
        assert session.chat_id is not None
        current = await self.restore(session.chat_id, visitor, session.model)
        async with aclosing(self.follow(current, visitor)) as sessions:
            async for current in sessions:
                yield current
        asked = session.exchanges[-1].content
        if code is ErrorCode.STALE_TURN or not current.exchanges or current.exchanges[-1].content != asked:
            yield replace(current, notice=current.notice or texts.CHAT_WENT_ON, unsent_text=asked)

    def _pending_events(
        self, session: ChatSession, chat_id: ChatId, visitor: Visitor
    ) -> AsyncGenerator[StreamEvent, None]:
        last, number = session.exchanges[-1], len(session.exchanges)
        match session.pending:
            case "turn":
                question = AskChat(content=last.content, number=number, model=last.model, sampling=session.sampling)
                return self.client.ask(chat_id, question, visitor)
            case "again":
                changed = AnswerAgain(content=last.content, number=number, model=last.model, sampling=session.sampling)
                return self.client.answer_again(chat_id, changed, visitor)
            case _:
                return self.client.resume_chat(chat_id, visitor)

    async def stop(self, session: ChatSession, visitor: Visitor) -> None:
        """End the answer early; the stream tells how it ended."""
        if session.chat_id is not None:
            await self.client.stop_chat(session.chat_id, visitor)

    async def begin_anew(self, session: ChatSession, visitor: Visitor) -> ChatSession:
        """An empty chat with the same model. The old one is deleted: no page would find it again. Where that fails, it
        is forgotten some time after its last turn."""
        if session.chat_id is not None:
            with suppress(ApiError, ControllerUnreachable):
                await self.client.delete_chat(session.chat_id, visitor)
        return ChatSession(model=session.model)


def sentence_of(error: ApiError | ControllerUnreachable) -> str:
    """What a visitor reads about an error."""
    if isinstance(error, ControllerUnreachable):
        return texts.UNREACHABLE
    return _failure(error.code)


def _failure(code: str) -> str:
    return texts.CHAT_FAILURES.get(code) or sentences.failure(code)
