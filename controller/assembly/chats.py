"""Parts that run chats."""

from dataclasses import dataclass, replace

from controller.assembly.base import Base
from controller.assembly.battles import BattleParts
from controller.assembly.workers import WorkerParts
from controller.battles.turn_runner import TurnRunner
from controller.battles.turn_stream import TurnStream
from controller.battles.turn_takeover import TurnTakeover
from controller.battles.turn_taking import TurnTaking
from controller.chats.chat_store import ChatStore
from controller.chats.chats import ChatBounds, Chats
from controller.config import Settings


@dataclass(frozen=True)
class ChatParts:
    """Parts that run chats."""

    store: ChatStore
    runner: TurnRunner
    takeover: TurnTakeover
    chats: Chats
    stream: TurnStream


def build_chat_parts(settings: Settings, base: Base, workers: WorkerParts, battles: BattleParts) -> ChatParts:
    """Build chats over the turns of battles, with limits of their own."""
    store = ChatStore(
        base.store,
        base.keys,
        ttl_s=settings.chat_ttl_s,
        most=settings.chats_per_visitor,
        ownership_s=settings.owner_lease_s,
    )
    tools = replace(battles.tools, kind="chat", max_tokens=settings.chat_max_tokens)
    runner = TurnRunner(store, tools, flush_s=settings.flush_s, patience_s=settings.store_patience_s)
    bounds = ChatBounds(settings.chat_max_turns, settings.chat_max_chars, settings.max_content_chars)
    return ChatParts(
        store=store,
        runner=runner,
        takeover=TurnTakeover(store, runner, ownership_s=settings.owner_lease_s),
        chats=Chats(
            store, workers.table, workers.dispatcher, TurnTaking(store, runner), battles.voters, base.trails, bounds
        ),
        stream=TurnStream(store, patience_s=settings.store_patience_s),
    )
