"""Direct chat: one model, streamed, with parameters, stop, retry and edit."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from html import escape
from typing import Any

import gradio as gr

from webui import texts
from webui.arena_page import STORAGE_SECRET, visitor_of
from webui.client import ControllerClient
from webui.components import PRIVATE, examples, header, intro, model_choice, prompt, sampling, thread
from webui.direct_chat import Chat, Chats, DirectChats, from_storage
from webui.pages.side_by_side import served_models
from wire.chat import SamplingOptions

Updates = AsyncGenerator[tuple[Any, ...], None]


def build(page: Any, chats: DirectChats, client: ControllerClient, *, max_prompt_chars: int) -> None:
    header("/chat")
    state = gr.State(Chat())
    stored = gr.BrowserState(None, storage_key="agon-direct-chat", secret=STORAGE_SECRET)
    with gr.Column(elem_classes=["agon-settings"]):
        with gr.Column(elem_classes=["agon-empty"]) as introduction:
            intro(texts.DIRECT_TITLE, texts.DIRECT_LEAD)
        model = model_choice(texts.MODEL, "model")
        parameters = sampling()
    with gr.Column(elem_classes=["agon-settings"]) as beginnings:
        example_buttons = examples()
    conversation = thread(columns=1)
    with gr.Column(elem_id="dock"):
        notice = gr.HTML("", elem_id="notice", apply_default_css=False)
        box = prompt(texts.PROMPT_DIRECT, max_chars=max_prompt_chars)
        with gr.Row(elem_classes=["agon-tools"]):
            retry = gr.Button(texts.RETRY, visible=False, elem_id="retry", scale=0, min_width=0)
            edit = gr.Button(texts.EDIT_LAST, visible=False, elem_id="edit", scale=0, min_width=0)
            new = gr.Button(texts.NEW_CHAT, visible=False, elem_id="new", scale=0, min_width=0)
    outputs = [
        *(state, stored, introduction, beginnings, conversation, notice),
        *(box.box, box.send, box.stop, retry, edit, new),
    ]

    def update(chat: Chat, before: Chat | None) -> tuple[Any, ...]:
        """The one place where a chat becomes Gradio's positional outputs."""
        is_first = before is None
        began = before is not None and len(chat.messages) > len(before.messages)
        rests = not chat.is_streaming
        changed_rest = is_first or (before is not None and before.is_streaming) != chat.is_streaming
        value = chat.draft if chat.draft is not None else ("" if began else None)
        idle = gr.update(visible=rests and bool(chat.messages)) if changed_rest or began else gr.skip()
        return (
            chat,
            chat.to_storage() if rests else gr.skip(),
            gr.update(visible=not chat.messages),
            gr.update(visible=not chat.messages),
            [message.model_dump() for message in chat.messages],
            "" if chat.notice is None else f'<p class="agon-notice" role="alert">{escape(chat.notice)}</p>',
            gr.skip() if value is None else gr.update(value=value),
            gr.update(visible=rests),
            gr.update(visible=not rests),
            idle,
            idle,
            idle,
        )

    async def shown(following: Chats, before: Chat | None) -> Updates:
        async with aclosing(following):
            async for chat in following:
                yield update(chat, before)
                before = chat

    async def ask(request: gr.Request, content: str, chat: Chat, name: str | None, *options: Any) -> Updates:
        sessions = chats.ask(chat, content, name, sampling_options(*options), visitor_of(request))
        async with aclosing(shown(sessions, chat)) as updates:
            async for one in updates:
                yield one

    async def answer_again(request: gr.Request, chat: Chat, name: str | None, *options: Any) -> Updates:
        sessions = chats.retry(chat, name, sampling_options(*options), visitor_of(request))
        async with aclosing(shown(sessions, chat)) as updates:
            async for one in updates:
                yield one

    async def fill(request: gr.Request) -> list[Any]:
        models = await served_models(client, visitor_of(request))
        if isinstance(models, str):
            return [gr.skip(), f'<p class="agon-notice" role="alert">{models}</p>']
        return [gr.update(choices=list(models), value=models[0]), gr.skip()]

    stream: dict[str, Any] = {"outputs": outputs, "concurrency_limit": None, **PRIVATE}
    chosen = [state, model, *parameters.inputs]
    asking = [
        gr.on([box.box.submit, box.send.click], ask, inputs=[box.box, *chosen], **stream),
        *(example.click(ask, inputs=[example, *chosen], **stream) for example in example_buttons),
        retry.click(answer_again, inputs=chosen, **stream),
    ]
    # Cancelling closes the generator, and with it the request to the controller, which then frees the model.
    box.stop.click(
        lambda chat: update(chat.stopped(), None), inputs=[state], outputs=outputs, cancels=asking, **PRIVATE
    )
    edit.click(lambda chat: update(chat.without_last_exchange(), None), inputs=[state], outputs=outputs, **PRIVATE)
    new.click(lambda: update(Chat(), None), outputs=outputs, **PRIVATE)
    page.load(lambda kept: update(from_storage(kept), None), inputs=[stored], outputs=outputs, **PRIVATE)
    page.load(fill, outputs=[model, notice], concurrency_limit=None, **PRIVATE)


def sampling_options(uses_own: bool, temperature: float, top_p: float, max_tokens: float) -> SamplingOptions:
    if uses_own:
        return SamplingOptions()
    return SamplingOptions(temperature=temperature, top_p=top_p, max_tokens=int(max_tokens))
