"""`/history`: a visitor's own battles, each with its page, its files and its link. `/shared/ID`: what a link shows.

A battle is shown here as its visitor may see it: without names before the vote. A link shows voted battles only.
"""

import time
from collections.abc import Awaitable, Callable
from html import escape

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse

from webui import sentences, texts
from webui.client import ControllerClient
from webui.controllers import ControllerUnreachable
from webui.feedback.block import feedback_block
from webui.history.conversation import Conversation
from webui.history.layout import page, sentence
from webui.links import link_to
from webui.visitors import Visitor, visitor_in
from wire.errors import ApiError
from wire.history import HistoryEntry
from wire.ids import BattleId, ShareId

_FORMATS = {"md": "text/markdown; charset=utf-8", "json": "application/json"}


def add_history_pages(app: FastAPI, client: ControllerClient) -> None:
    """Add the pages. A form sends what changes something; the answer leads back to the page."""

    @app.get(texts.HISTORY_PATH)
    async def history(request: Request) -> Response:
        async def shown() -> Response:
            return page(texts.HISTORY, _list(await client.own_battles(_visitor(request))))

        return await _answered(shown)

    @app.get(f"{texts.HISTORY_PATH}/{{name}}")
    async def own(request: Request, name: str) -> Response:
        visitor, (word, _, form) = _visitor(request), name.partition(".")

        async def shown() -> Response:
            battle_id = BattleId.parse(word)
            if battle_id is None:
                return sentence(texts.NOT_FOUND, 404)
            conversation = Conversation.of_view(await client.battle(battle_id, visitor))
            if form:
                return _file(conversation, form)
            entry = next((each for each in await client.own_battles(visitor) if each.id == battle_id), None)
            tools = "" if entry is None else _tools_of_owner(entry) + await _feedback(client, entry, visitor)
            return _conversation_page(conversation, link_to(f"{texts.HISTORY_PATH}/{battle_id}"), tools)

        return await _answered(shown)

    @app.post(f"{texts.HISTORY_PATH}/{{battle_id}}/{{action}}")
    async def change(request: Request, battle_id: str, action: str) -> Response:
        visitor, checked = _visitor(request), BattleId.parse(battle_id)

        async def changed() -> Response:
            if checked is None:
                return sentence(texts.NOT_FOUND, 404)
            match action:
                case "share":
                    await client.share(checked, visitor)
                case "unshare":
                    await client.unshare(checked, visitor)
                case "forget":
                    await client.forget(checked, visitor)
                    return RedirectResponse(texts.HISTORY_PATH, 303)
                case _:
                    return sentence(texts.NOT_FOUND, 404)
            return RedirectResponse(f"{texts.HISTORY_PATH}/{checked}", 303)

        return await _answered(changed)

    @app.get(f"{texts.SHARED_PATH}/{{name}}")
    async def shared(request: Request, name: str) -> Response:
        visitor, (word, _, form) = _visitor(request), name.partition(".")

        async def shown() -> Response:
            share_id = ShareId.parse(word)
            if share_id is None:
                return sentence(texts.NOT_SHARED, 404)
            battle = await client.shared(share_id, visitor)
            conversation = Conversation.of_shared(battle)
            if form:
                return _file(conversation, form)
            lead = f'<p class="quiet">{escape(sentences.shared_on(battle.day))}</p>'
            return _conversation_page(conversation, link_to(f"{texts.SHARED_PATH}/{share_id}"), lead)

        return await _answered(shown, missing=texts.NOT_SHARED)


def _visitor(request: Request) -> Visitor:
    return visitor_in(request.scope, request.client.host if request.client else "unknown")


async def _answered(answer: Callable[[], Awaitable[Response]], *, missing: str | None = None) -> Response:
    """The answer, or a page that says why there is none. `missing` is said of what does not exist."""
    try:
        return await answer()
    except ApiError as error:
        is_missing = missing is not None and error.status == 404
        return sentence(missing if is_missing and missing else sentences.failure(error.code), error.status)
    except ControllerUnreachable:
        return sentence(texts.UNREACHABLE, 503)


def _file(conversation: Conversation, form: str) -> Response:
    if form not in _FORMATS:
        return sentence(texts.NOT_FOUND, 404)
    text = conversation.as_markdown() if form == "md" else conversation.as_json()
    headers = {"Content-Disposition": f'attachment; filename="conversation.{form}"', "Cache-Control": "no-store"}
    return PlainTextResponse(text, media_type=_FORMATS[form], headers=headers)


def _conversation_page(conversation: Conversation, path: str, tools: str) -> HTMLResponse:
    models = " \u00b7 ".join(conversation.models.values())
    title = models or texts.CONVERSATION
    files = (
        f'<p class="tools">{_copy("text", texts.COPY)}<a href="{path}.md" download>Markdown</a>'
        f'<a href="{path}.json" download>JSON</a></p>'
    )
    copied = f'<pre id="text" hidden>{escape(conversation.as_markdown())}</pre>'
    return page(title, f"<h1>{escape(title)}</h1>{tools}{files}{conversation.as_markup()}{copied}")


def _tools_of_owner(entry: HistoryEntry) -> str:
    forget = _button(entry, "forget", texts.FORGET)
    if entry.outcome is None:
        return f'<p class="quiet">{escape(texts.SHARED_AFTER_VOTE)}</p><div class="tools">{forget}</div>'
    if entry.share_id is None:
        return f'<div class="tools">{_button(entry, "share", texts.SHARE)}{forget}</div>'
    link = link_to(f"{texts.SHARED_PATH}/{entry.share_id}")
    return (
        f'<p class="quiet">{escape(texts.IS_SHARED)} <a id="link" href="{link}">{link}</a></p>'
        f'<div class="tools">{_copy("link", texts.COPY_LINK)}{_button(entry, "unshare", texts.UNSHARE)}{forget}</div>'
    )


async def _feedback(client: ControllerClient, entry: HistoryEntry, visitor: Visitor) -> str:
    """What the visitor says about the vote; nothing before it, and where the arena does not tell."""
    if entry.outcome is None:
        return ""
    try:
        said = await client.feedback(entry.id, visitor)
    except (ApiError, ControllerUnreachable):
        return ""
    return feedback_block(entry.id, entry.outcome, said)


def _copy(element: str, name: str) -> str:
    return f'<button type="button" data-copy="{element}" data-done="{escape(texts.COPIED)}">{escape(name)}</button>'


def _button(entry: HistoryEntry, action: str, name: str) -> str:
    return (
        f'<form method="post" action="{link_to(texts.HISTORY_PATH)}/{entry.id}/{action}">'
        f'<button type="submit" id="{action}">{escape(name)}</button></form>'
    )


def _list(entries: tuple[HistoryEntry, ...]) -> str:
    head = f'<h1>{escape(texts.HISTORY)}</h1><p class="quiet">{escape(texts.HISTORY_LEAD)}</p>'
    if not entries:
        return f'{head}<p>{escape(texts.HISTORY_EMPTY)} <a href="{link_to("/")}">{escape(texts.START_BATTLE)}</a></p>'
    rows = "".join(_row(entry) for entry in entries)
    return f'{head}<ol class="battles">{rows}</ol>'


def _row(entry: HistoryEntry) -> str:
    began = time.gmtime(entry.began_s)
    models = "" if entry.models is None else " \u00b7 ".join(entry.models.values())
    verdict = texts.NOT_VOTED if entry.outcome is None else texts.VOTED[entry.outcome]
    details = " \u00b7 ".join(
        part for part in (models, verdict, texts.IS_SHARED_SHORT if entry.share_id else "") if part
    )
    return (
        f'<li><a href="{link_to(texts.HISTORY_PATH)}/{entry.id}" dir="auto">{escape(entry.question)}</a>'
        f'<p class="quiet"><time datetime="{time.strftime("%Y-%m-%dT%H:%MZ", began)}">'
        f"{time.strftime('%Y-%m-%d %H:%M', began)} UTC</time> &middot; {escape(details)}</p></li>"
    )
