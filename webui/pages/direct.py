"""Direct chat: one model, streamed, with parameters, stop, retry and edit."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import gradio as gr

from webui import texts
from webui.arena_page import STORAGE_SECRET, visitor_of
from webui.as_written import as_written
from webui.client import ControllerClient
from webui.components import PRIVATE, examples, header, intro, model_choice, notice, prompt, sampling, thread
from webui.direct_chat import Chat, DirectChats, from_storage
from webui.pages.side_by_side import ASK_AGAIN_S, served_models
from webui.session import Seat
from wire.chat import SamplingOptions


def build(page: Any, chats: DirectChats, client: ControllerClient) -> None:
    header("/chat")
    seat = gr.State(Seat(Chat()))
    stored = gr.BrowserState(None, storage_key="agon-direct-chat", secret=STORAGE_SECRET)
    with gr.Column(elem_classes=["agon-settings"]):
        with gr.Column(elem_classes=["agon-empty"]) as introduction:
            intro(texts.DIRECT_TITLE, texts.DIRECT_LEAD)
        model = model_choice(texts.MODEL, "model")
        hint = gr.HTML("", elem_id="models-hint", apply_default_css=False)
        parameters = sampling()
    with gr.Column(elem_classes=["agon-settings"]) as beginnings:
        example_buttons = examples()
    conversation = thread(columns=1)
    with gr.Column(elem_id="dock", elem_classes=["agon-narrow"]):
        told = gr.HTML("", elem_id="notice", apply_default_css=False)
        box = prompt(texts.PROMPT_DIRECT)
        with gr.Row(elem_classes=["agon-tools"]):
            retry = gr.Button(texts.RETRY, visible=False, elem_id="retry", scale=0, min_width=0)
            edit = gr.Button(texts.EDIT_LAST, visible=False, elem_id="edit", scale=0, min_width=0)
            new = gr.Button(texts.NEW_CHAT, visible=False, elem_id="new", scale=0, min_width=0)
    rest = [
        *(stored, introduction, beginnings, told),
        *(box.box, box.send, box.stop, retry, edit, new),
    ]

    def show_rest(chat: Chat, *, clears_box: bool = False) -> list[Any]:
        """The one place where a chat becomes Gradio's positional outputs."""
        is_idle = not chat.is_streaming
        value = chat.draft if chat.draft is not None else "" if clears_box else None
        tools = gr.update(visible=is_idle and bool(chat.messages))
        return [
            chat.to_storage() if is_idle else gr.skip(),
            gr.update(visible=not chat.messages),
            gr.update(visible=not chat.messages),
            "" if chat.notice is None else notice(chat.notice),
            gr.skip() if value is None else gr.update(value=value),
            gr.update(visible=is_idle),
            gr.update(visible=not is_idle),
            tools,
            tools,
            tools,
        ]

    def show_text(chat: Chat) -> list[dict[str, Any]]:
        """An empty answer is drawn as a typing indicator while it is awaited; one that was stopped says so."""
        shown = [{"role": one.role, "content": as_written(one.content, keeps=("think",))} for one in chat.messages]
        if shown and not chat.is_streaming and not shown[-1]["content"]:
            shown[-1]["content"] = f"*({texts.STATUS['stopped']})*"
        return shown

    def put(seat: Seat[Chat], chat: Chat, *, clears_box: bool = False) -> list[Any]:
        seat.value = chat
        return [show_text(chat), *show_rest(chat, clears_box=clears_box)]

    def begin(content: str, seat: Seat[Chat], name: str | None) -> list[Any]:
        was_streaming = seat.value.is_streaming
        chat = chats.begin(seat.value, content, name)
        return put(seat, chat, clears_box=chat.is_streaming and not was_streaming)

    def begin_again(seat: Seat[Chat], name: str | None) -> list[Any]:
        return put(seat, chats.begin_again(seat.value, name))

    async def follow(
        request: gr.Request, seat: Seat[Chat], name: str, *options: Any
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        following = chats.follow(seat.value, name, sampling_options(*options), visitor_of(request))
        async with aclosing(following):
            async for chat in following:
                seat.value = chat
                yield show_text(chat)

    async def fill(request: gr.Request) -> list[Any]:
        models = await served_models(client, visitor_of(request))
        if isinstance(models, str):
            return [gr.skip(), notice(models), gr.skip()]
        return [gr.update(choices=list(models), value=models[0]), "", gr.Timer(active=False)]

    whole: dict[str, Any] = {"outputs": [conversation, *rest], **PRIVATE}
    asked = gr.on([box.box.submit, box.send.click], begin, inputs=[box.box, seat, model], **whole)
    started = [
        asked,
        *(example.click(begin, inputs=[example, seat, model], **whole) for example in example_buttons),
        retry.click(begin_again, inputs=[seat, model], **whole),
    ]
    streams = []
    for one in started:
        stream = one.then(
            follow,
            inputs=[seat, model, *parameters.inputs],
            outputs=[conversation],
            concurrency_limit=None,
            **PRIVATE,
        )
        stream.then(lambda seat: show_rest(seat.value), inputs=[seat], outputs=rest, **PRIVATE)
        streams.append(stream)
    # Cancelling closes the generator, and with it the request to the controller, which then frees the model.
    box.stop.click(lambda seat: put(seat, seat.value.stopped()), inputs=[seat], cancels=streams, **whole)
    edit.click(lambda seat: put(seat, seat.value.without_last_exchange()), inputs=[seat], **whole)
    new.click(lambda seat: put(seat, Chat()), inputs=[seat], **whole)
    page.load(lambda seat, kept: put(seat, from_storage(kept)), inputs=[seat, stored], **whole)
    timer = gr.Timer(ASK_AGAIN_S)
    gr.on([page.load, timer.tick], fill, outputs=[model, hint, timer], concurrency_limit=None, **PRIVATE)


def sampling_options(uses_own: bool, temperature: float, top_p: float, max_tokens: float) -> SamplingOptions:
    if uses_own:
        return SamplingOptions()
    return SamplingOptions(temperature=temperature, top_p=top_p, max_tokens=int(max_tokens))
