"""Direct chat: one model, streamed, with parameters, stop, retry and edit."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import gradio as gr

from webui import texts
from webui.as_written import as_written
from webui.client import ControllerClient
from webui.direct_chat import Chat, DirectChats, from_storage
from webui.pages.side_by_side import ASK_AGAIN_S, served_models
from webui.seats import STORAGE_SECRET, Seat
from webui.starter_prompts import StarterPrompts
from webui.thoughts import folded
from webui.visitors import visitor_of
from webui.widgets import (
    PRIVATE,
    Prompt,
    Sampling,
    examples,
    header,
    intro,
    model_choice,
    notice,
    prompt,
    sampling,
    thread,
)
from wire.chat import SamplingOptions


@dataclass(frozen=True)
class ChatParts:
    """The Gradio components of the page, and the one place where a chat becomes Gradio's positional outputs."""

    seat: gr.State
    stored: gr.BrowserState
    introduction: gr.Column
    beginnings: gr.Column
    model: gr.Dropdown
    hint: gr.HTML
    parameters: Sampling
    examples: list[gr.Button]
    thread: gr.Chatbot
    notice: gr.HTML
    prompt: Prompt
    retry: gr.Button
    edit: gr.Button
    new: gr.Button

    @property
    def rest(self) -> list[Any]:
        """Components that change when an answer begins or ends."""
        return [
            *(self.stored, self.introduction, self.beginnings, self.notice),
            *(self.prompt.box, self.prompt.send, self.prompt.stop, self.retry, self.edit, self.new),
        ]

    def show_rest(self, chat: Chat, *, clears_box: bool = False) -> list[Any]:
        """Values of `rest`."""
        is_idle = not chat.is_streaming
        value = chat.unsent_text if chat.unsent_text is not None else "" if clears_box else None
        tools = gr.update(visible=is_idle and bool(chat.messages))
        return [
            chat.to_storage(),
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

    def show_text(self, chat: Chat) -> list[dict[str, Any]]:
        """The value of `thread`. An empty answer is shown as a typing indicator while it is awaited; one that was
        stopped says so."""
        shown = [{"role": one.role, "content": as_written(one.content)} for one in chat.messages]
        if shown and not chat.is_streaming and not shown[-1]["content"]:
            shown[-1]["content"] = f"*({texts.STATUS['stopped']})*"
        for number, (message, one) in enumerate(zip(chat.messages, shown, strict=True)):
            if message.reasoning_content:
                is_thinking = chat.is_streaming and not message.content
                thoughts = folded(message.reasoning_content, f"thoughts-{number}", is_thinking=is_thinking)
                one["content"] = f"{thoughts}\n\n{one['content']}"
        return shown

    def put(self, seat: Seat[Chat], chat: Chat, *, clears_box: bool = False) -> list[Any]:
        """Store `chat` as the visitor's and return the values of `thread` and `rest`."""
        seat.value = chat
        return [self.show_text(chat), *self.show_rest(chat, clears_box=clears_box)]


def build(page: Any, chats: DirectChats, client: ControllerClient, starters: StarterPrompts) -> None:
    """Create the page's components and bind their events."""
    header("/chat")
    parts = _chat_parts()
    starters.bind(page, parts.examples)
    _wire_chat(page, parts, chats)
    _wire_models(page, parts, client)


def _chat_parts() -> ChatParts:
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
        notice_box = gr.HTML("", elem_id="notice", apply_default_css=False)
        box = prompt(texts.PROMPT_DIRECT)
        with gr.Row(elem_classes=["agon-tools"]):
            retry = gr.Button(texts.RETRY, visible=False, elem_id="retry", scale=0, min_width=0)
            edit = gr.Button(texts.EDIT_LAST, visible=False, elem_id="edit", scale=0, min_width=0)
            new = gr.Button(texts.NEW_CHAT, visible=False, elem_id="new", scale=0, min_width=0)
    return ChatParts(
        seat=seat,
        stored=stored,
        introduction=introduction,
        beginnings=beginnings,
        model=model,
        hint=hint,
        parameters=parameters,
        examples=example_buttons,
        thread=conversation,
        notice=notice_box,
        prompt=box,
        retry=retry,
        edit=edit,
        new=new,
    )


def _wire_chat(page: Any, parts: ChatParts, chats: DirectChats) -> None:
    """Bind everything that changes the conversation."""

    def current(seat: Seat[Chat], kept: Any) -> Chat:
        """The chat to act on. After a restart of this service the seat is empty; the browser has the transcript."""
        return seat.value if seat.value != Chat() else from_storage(kept)

    def begin(content: str, seat: Seat[Chat], kept: Any, name: str | None) -> list[Any]:
        before = current(seat, kept)
        chat = chats.begin(before, content, name)
        return parts.put(seat, chat, clears_box=chat.is_streaming and not before.is_streaming)

    def begin_again(seat: Seat[Chat], kept: Any, name: str | None) -> list[Any]:
        return parts.put(seat, chats.begin_again(current(seat, kept), name))

    async def follow(
        request: gr.Request, seat: Seat[Chat], name: str, *options: Any
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        following = chats.follow(seat.value, name, sampling_options(*options), visitor_of(request))
        async with aclosing(following):
            async for chat in following:
                seat.value = chat
                yield parts.show_text(chat)

    box, seat, stored, model = parts.prompt.box, parts.seat, parts.stored, parts.model
    whole: dict[str, Any] = {"outputs": [parts.thread, *parts.rest], **PRIVATE}
    started = [
        gr.on([box.submit, parts.prompt.send.click], begin, inputs=[box, seat, stored, model], **whole),
        *(example.click(begin, inputs=[example, seat, stored, model], **whole) for example in parts.examples),
        parts.retry.click(begin_again, inputs=[seat, stored, model], **whole),
    ]
    streams = []
    for one in started:
        inputs = [seat, model, *parts.parameters.inputs]
        stream = one.then(follow, inputs=inputs, outputs=[parts.thread], concurrency_limit=None, **PRIVATE)
        stream.then(lambda seat: parts.show_rest(seat.value), inputs=[seat], outputs=parts.rest, **PRIVATE)
        streams.append(stream)
    # Cancelling closes the generator, and with it the request to the controller, which then aborts it at the worker.
    parts.prompt.stop.click(lambda seat: parts.put(seat, seat.value.stopped()), inputs=[seat], cancels=streams, **whole)
    parts.edit.click(
        lambda seat, kept: parts.put(seat, current(seat, kept).without_last_exchange()), inputs=[seat, stored], **whole
    )
    parts.new.click(lambda seat: parts.put(seat, Chat()), inputs=[seat], **whole)
    page.load(lambda seat, kept: parts.put(seat, from_storage(kept)), inputs=[seat, stored], **whole)


def _wire_models(page: Any, parts: ChatParts, client: ControllerClient) -> None:
    """Fill the choice of models when the page is opened, and ask again until there is one."""

    async def fill(request: gr.Request) -> list[Any]:
        models = await served_models(client, visitor_of(request))
        if isinstance(models, str):
            return [gr.skip(), notice(models), gr.skip()]
        return [gr.update(choices=list(models), value=models[0]), "", gr.Timer(active=False)]

    timer = gr.Timer(ASK_AGAIN_S)
    outputs = [parts.model, parts.hint, timer]
    gr.on([page.load, timer.tick], fill, outputs=outputs, concurrency_limit=None, **PRIVATE)


def sampling_options(uses_own: bool, temperature: float, top_p: float, max_tokens: float) -> SamplingOptions:
    """The request's sampling options from the values of Sampling.inputs; `uses_own` sends none."""
    if uses_own:
        return SamplingOptions()
    return SamplingOptions(temperature=temperature, top_p=top_p, max_tokens=int(max_tokens))
