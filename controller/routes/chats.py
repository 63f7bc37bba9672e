"""Chats over HTTP: begin one, ask, follow the answer, stop it, have it answered again, delete the chat."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from controller.access.identity import Identities
from controller.access.rate_limits import RateLimiter
from controller.admin.terms import Terms
from controller.battles.turn_stream import TurnStream
from controller.chats.chats import Chats
from controller.routes.path_ids import CHAT_ID, ChatInPath
from controller.routes.replies import json_reply
from controller.routes.turns import TURN_EVENTS, TURN_HEADERS, last_event_id, request_key
from service_kit.bodies import Bodies
from service_kit.event_stream import EventStream
from service_kit.route_docs import Answer, documented
from wire.chats import AnswerAgain, AskChat, ChatView, CreateChat
from wire.errors import ErrorCode

_OF_ALL = (ErrorCode.VOTER_NOT_KNOWN, ErrorCode.RATE_LIMITED, ErrorCode.STORE_UNAVAILABLE)
_OF_A_CHAT = (*_OF_ALL, ErrorCode.CHAT_NOT_FOUND)
_OF_A_TURN = (
    *_OF_A_CHAT,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.CONTEXT_LENGTH_EXCEEDED,
    ErrorCode.MODEL_NOT_FOUND,
    ErrorCode.NOT_A_CHAT_MODEL,
    ErrorCode.BATTLE_BUSY,
    ErrorCode.BATTLE_FULL,
    ErrorCode.STALE_TURN,
    ErrorCode.QUEUE_FULL,
    ErrorCode.NO_WORKER,
)


def add_chat_routes(
    router: APIRouter,
    bodies: Bodies,
    identities: Identities,
    limits: RateLimiter,
    chats: Chats,
    stream: TurnStream,
    terms: Terms,
) -> None:
    """Add the routes of chats to `router`."""

    @router.post("/arena/chats")
    @documented(
        "Chats",
        "Begin a chat",
        request=CreateChat,
        example={"model": "raven", "system_prompt": "Answer in one sentence."},
        answer=Answer(json=ChatView, status=201),
        errors=(
            *_OF_ALL,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.CAPTCHA_NEEDED,
            ErrorCode.TERMS_NOT_ACCEPTED,
            ErrorCode.MODEL_NOT_FOUND,
            ErrorCode.NOT_A_CHAT_MODEL,
        ),
    )
    async def create(request: Request) -> Response:
        """A chat is kept for `AGON_CHAT_TTL_S` after its last turn, and belongs to the visitor who begins it: the
        cookie that the request has or gets with the answer, or without cookies the address. Of the chats of one visitor
        the newest `AGON_CHATS_PER_VISITOR` are kept."""
        wanted = await bodies.parse(request, CreateChat)
        await limits.check(identities.client_of(request), "chat")
        await terms.require(await identities.of(request))
        visitor, headers = await identities.welcome(request)
        reply = json_reply(chats.view(await chats.create(wanted, visitor)), status=201)
        reply.headers.update(headers)
        return reply

    @router.get("/arena/chats/{chat_id}")
    @documented("Chats", "Read a chat", parameters=CHAT_ID, answer=ChatView, errors=_OF_A_CHAT)
    async def read(request: Request, chat_id: ChatInPath) -> Response:
        """The chat with all its turns, one that is still being answered without its text."""
        return json_reply(chats.view(await chats.read(chat_id, await identities.of(request))))

    @router.delete("/arena/chats/{chat_id}")
    @documented("Chats", "Delete a chat", parameters=CHAT_ID, answer=Answer(status=204), errors=_OF_A_CHAT)
    async def delete(request: Request, chat_id: ChatInPath) -> Response:
        """Everything that was said in it is deleted at once."""
        await limits.check(identities.client_of(request), "chat")
        await chats.delete(chat_id, await identities.of(request))
        return Response(status_code=204)

    @router.post("/arena/chats/{chat_id}/turns")
    @documented(
        "Chats",
        "Send a message",
        parameters=CHAT_ID,
        headers=TURN_HEADERS,
        request=AskChat,
        example={"content": "What is 17 + 25?", "number": 1},
        answer=Answer(events=TURN_EVENTS),
        errors=_OF_A_TURN,
    )
    async def ask(request: Request, chat_id: ChatInPath) -> Response:
        """Streams the answer as events of side `a`. The turn goes on when the client leaves: a GET of the stream with
        `Last-Event-ID` gives what it missed. A turn that failed stays, and may be answered again."""
        body = await bodies.parse(request, AskChat)
        key, after = request_key(request), last_event_id(request)
        await limits.check(identities.client_of(request), "turn")
        before = await chats.ask(chat_id, body, await identities.of(request), key)
        return EventStream(stream.follow(chat_id, after or before))

    @router.post("/arena/chats/{chat_id}/regenerate")
    @documented(
        "Chats",
        "Answer the last turn again, or change it",
        parameters=CHAT_ID,
        headers=TURN_HEADERS,
        request=AnswerAgain,
        example={"number": 1, "content": "What is 17 + 26?"},
        answer=Answer(events=TURN_EVENTS),
        errors=_OF_A_TURN,
    )
    async def regenerate(request: Request, chat_id: ChatInPath) -> Response:
        """Message and answer of the last turn are replaced. If the new answer fails, a good one that was there before
        stays with its message, and `turn_finished` says that the turn was not kept."""
        body = await bodies.parse(request, AnswerAgain)
        key, after = request_key(request), last_event_id(request)
        await limits.check(identities.client_of(request), "turn")
        before = await chats.answer_again(chat_id, body, await identities.of(request), key)
        return EventStream(stream.follow(chat_id, after or before))

    @router.get("/arena/chats/{chat_id}/stream")
    @documented(
        "Chats",
        "Follow the events of the current turn",
        parameters=CHAT_ID,
        headers={"Last-Event-ID": "id of the last event received; without it the turn comes from its beginning"},
        answer=Answer(events=TURN_EVENTS),
        errors=(*_OF_A_CHAT, ErrorCode.INVALID_REQUEST),
    )
    async def resume(request: Request, chat_id: ChatInPath) -> Response:
        """Any controller of the arena can resume the stream. It ends with `turn_finished`, also where no turn runs."""
        await limits.check(identities.client_of(request), "stream")
        after = last_event_id(request)
        await chats.read(chat_id, await identities.of(request))
        return EventStream(stream.follow(chat_id, after))

    @router.post("/arena/chats/{chat_id}/stop")
    @documented("Chats", "Stop the running turn", parameters=CHAT_ID, answer=ChatView, errors=_OF_A_CHAT)
    async def stop(request: Request, chat_id: ChatInPath) -> Response:
        """Answers when the turn has ended, or after three seconds with the chat as it is then. What the model has
        written so far stays. Without a running turn nothing changes."""
        await limits.check(identities.client_of(request), "stop")
        return json_reply(chats.view(await chats.stop(chat_id, await identities.of(request))))
