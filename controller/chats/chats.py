"""What a visitor can do with a chat: begin it, ask, have the last turn answered again or changed, stop, delete.

A chat is a named battle with side a alone (battle_record.py), under keys of its own: no vote, export or board reads
them. Who began a chat is the only one who may read it. The model and the sampling may change from turn to turn; each
turn is stored with the model that was asked.
"""

import logging
import secrets
from dataclasses import dataclass, replace

from controller.access.identity import Visitor
from controller.battles.battle_record import Battle, StoredSide, StoredTurn, answer_view, side_fields
from controller.battles.trails import Trails
from controller.battles.turn_taking import TurnRequest, TurnTaking
from controller.battles.voters import Voters
from controller.chats.chat_store import ChatStore, chat_not_found
from controller.workers.dispatch import Dispatcher, Wish
from controller.workers.routing_table import RoutingTable
from service_kit.logs import log_event, short
from wire.battles import BattleSampling
from wire.chats import AnswerAgain, AskChat, ChatState, ChatTurn, ChatView, CreateChat
from wire.entry_ids import EntryId
from wire.errors import ApiError, ErrorCode
from wire.ids import ChatId

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChatBounds:
    """How large a chat may grow."""

    turns: int
    chars: int  #: of all its messages, answers and thoughts, when a turn begins
    content_chars: int  #: of one message, and of the system prompt


class Chats:
    """The operations behind the chat routes. Every method raises ApiError, also CHAT_NOT_FOUND and
    STORE_UNAVAILABLE."""

    def __init__(
        self,
        store: ChatStore,
        table: RoutingTable,
        dispatcher: Dispatcher,
        taking: TurnTaking,
        voters: Voters,
        trails: Trails,
        bounds: ChatBounds,
    ) -> None:
        self._store = store
        self._table = table
        self._dispatcher = dispatcher
        self._taking = taking
        self._voters = voters
        self._trails = trails
        self._bounds = bounds

    async def create(self, request: CreateChat, visitor: Visitor) -> Battle:
        """Create a chat without a turn. Raises ApiError MODEL_NOT_FOUND or NOT_A_CHAT_MODEL."""
        self._check_length(request.system_prompt, "system_prompt")
        chat_id = ChatId(secrets.token_urlsafe(16))
        owner = self._voters.owner(visitor)
        fields = {
            "mode": "named",
            "state": "open",
            **owner.fields(),
            **side_fields("a", self._side(request.model)),
            "system": request.system_prompt.strip(),
            "sampling": (request.sampling or BattleSampling()).model_dump_json(),
            "turn": "0",
            "run": "0",
        }
        await self._store.create(chat_id, owner, fields)
        self._trails.note(chat_id, "created")
        log_event(_logger, "chat_created", chat=short(chat_id))
        return await self._store.read(chat_id)

    async def read(self, chat_id: ChatId, visitor: Visitor) -> Battle:
        """The visitor's chat now."""
        chat = await self._store.read(chat_id)
        if chat.state == "expired" or self._voters.voter_of(chat, visitor) is None:
            raise chat_not_found()
        return chat

    async def ask(self, chat_id: ChatId, request: AskChat, visitor: Visitor, request_key: str | None = None) -> EntryId:
        """Begin the next turn. Returns and raises as Battles.take_turn does, MODEL_NOT_FOUND and
        NOT_A_CHAT_MODEL too."""
        self._check_content(request.content)

        async def begin(chat: Battle) -> EntryId:
            if len(chat.turns) >= self._bounds.turns:
                raise ApiError(ErrorCode.BATTLE_FULL, f"A chat has at most {self._bounds.turns} turns.")
            if request.number not in (None, len(chat.turns) + 1):
                raise _stale(chat)
            return await self._begin(chat, len(chat.turns) + 1, request.content, request, request_key)

        return await self._taking.once(
            lambda: self.read(chat_id, visitor), TurnRequest(request_key, request.content), begin
        )

    async def answer_again(
        self, chat_id: ChatId, request: AnswerAgain, visitor: Visitor, request_key: str | None = None
    ) -> EntryId:
        """Answer the last turn again, perhaps with another message or by another model. If the new answer fails, an
        earlier good one stays."""
        if request.content is not None:
            self._check_content(request.content)

        async def begin(chat: Battle) -> EntryId:
            if not chat.turns:
                raise ApiError(ErrorCode.INVALID_REQUEST, "There is no turn to answer again.")
            if request.number not in (None, len(chat.turns)):
                raise _stale(chat)
            content = chat.turns[-1].content if request.content is None else request.content
            return await self._begin(chat, len(chat.turns), content, request, request_key)

        return await self._taking.once(
            lambda: self.read(chat_id, visitor), TurnRequest(request_key, request.content), begin
        )

    async def stop(self, chat_id: ChatId, visitor: Visitor) -> Battle:
        """End the running turn with the text so far. Without one it does nothing."""
        await self.read(chat_id, visitor)
        return await self._taking.stop(chat_id)

    async def delete(self, chat_id: ChatId, visitor: Visitor) -> None:
        """Delete the chat; a running turn is stopped."""
        chat = await self.read(chat_id, visitor)
        if chat.state == "streaming":
            await self._taking.stop(chat_id)
        await self._store.delete(chat_id, chat.owner)
        log_event(_logger, "chat_deleted", chat=short(chat_id))

    def view(self, chat: Battle) -> ChatView:
        """The chat as its visitor sees it."""
        model = chat.sides["a"].model
        state: ChatState = "streaming" if chat.state == "streaming" else "answered" if chat.turns else "open"
        return ChatView(
            id=ChatId(chat.battle_id),
            state=state,
            model=model,
            system_prompt=chat.system_prompt,
            sampling=chat.sampling,
            turns=tuple(
                ChatTurn(
                    number=number,
                    content=turn.content,
                    model=turn.model or model,
                    answer=answer_view(turn.a, known=True),
                )
                for number, turn in enumerate(chat.turns, start=1)
            ),
            max_turns=self._bounds.turns,
        )

    async def _begin(
        self, chat: Battle, turn: int, content: str, request: AskChat | AnswerAgain, request_key: str | None
    ) -> EntryId:
        chat = replace(chat, sampling=request.sampling or chat.sampling)
        side = chat.sides["a"]
        if request.model not in (None, side.model):
            side = self._side(request.model)
        chat = replace(chat, sides={"a": side})
        if _num_chars(chat, turn - 1) + len(content) > self._bounds.chars:
            raise ApiError(ErrorCode.BATTLE_FULL, f"A chat has at most {self._bounds.chars} characters.")
        try:
            [lane] = await self._dispatcher.reserve([Wish(side.model, side.worker_id)], "chat")
        except ApiError as error:
            refused = error.code.value
            self._trails.note(chat.battle_id, "refused", turn=turn, side="a", model=side.model, reason=refused)
            raise
        changes = {**side_fields("a", side), "sampling": chat.sampling.model_dump_json()}
        asked = StoredTurn(content=content, model=side.model)
        return await self._taking.begin(chat, turn, asked, {"a": lane}, changes, request_key=request_key)

    def _side(self, model: str | None) -> StoredSide:
        """The model as it is stored; whether it can answer now is seen when a turn begins."""
        card = None if model is None else self._table.chat_card(model, "model")
        if card is not None:
            return StoredSide(card.name, card.revision, None)
        if model is None or not self._table.knows(model) or self._table.is_off(model):
            raise ApiError(ErrorCode.MODEL_NOT_FOUND, f"The model {model!r} does not exist.", param="model")
        return StoredSide(model, "", None)

    def _check_content(self, content: str) -> None:
        if not content.strip():
            raise ApiError(ErrorCode.INVALID_REQUEST, "The message is empty.", param="content")
        self._check_length(content, "content")

    def _check_length(self, text: str, param: str) -> None:
        most = self._bounds.content_chars
        if len(text) > most:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{param}: longer than {most} characters.", param=param)


def _num_chars(chat: Battle, num_turns: int) -> int:
    turns = chat.turns[:num_turns]
    return len(chat.system_prompt) + sum(len(t.content) + len(t.a.text) + len(t.a.thoughts) for t in turns)


def _stale(chat: Battle) -> ApiError:
    return ApiError(ErrorCode.STALE_TURN, f"The chat has {len(chat.turns)} turns by now.", param="number")
