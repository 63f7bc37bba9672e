"""The Chat page: its Gradio components, and the one place where a session becomes Gradio's positional outputs."""

from dataclasses import dataclass
from typing import Any

import gradio as gr

from webui import texts
from webui.chat.look import messages, notice_of, placeholder
from webui.chat.session import ChatSession, bookmark_of
from webui.links import link_to
from webui.seats import STORAGE_SECRET, Seat
from webui.widgets import Prompt, Sampling, examples, intro, model_choice, prompt, sampling, thread


@dataclass(frozen=True)
class ChatParts:
    """The components; handlers return values for `text`, or for `thread` and `rest`, in their order."""

    seat: gr.State
    bookmark: gr.BrowserState
    introduction: gr.Column
    beginnings: gr.Column
    model: gr.Dropdown
    hint: gr.HTML
    parameters: Sampling
    system_fold: gr.Accordion
    system: gr.Textbox
    examples: list[gr.Button]
    thread: gr.Chatbot
    notice: gr.HTML
    prompt: Prompt
    retry: gr.Button
    edit: gr.Button
    new: gr.Button
    resume: gr.Button

    @property
    def text(self) -> list[Any]:
        """Components that change with every piece of text."""
        return [self.thread, self.notice]

    @property
    def rest(self) -> list[Any]:
        """Components that change when an answer begins or ends."""
        return [
            *(self.bookmark, self.introduction, self.beginnings, self.system_fold, self.system, self.notice),
            *(self.prompt.box, self.prompt.send, self.prompt.stop, self.retry, self.edit, self.new, self.resume),
        ]

    def show_text(self, session: ChatSession) -> list[Any]:
        """Values of `text`."""
        return [messages(session), notice_of(session)]

    def show_rest(self, session: ChatSession, *, clears_box: bool = False) -> list[Any]:
        """Values of `rest`. `clears_box` empties the text box, unless the session puts unsent text into it."""
        is_idle, has_begun = not session.is_busy, bool(session.exchanges)
        box: dict[str, Any] = {"placeholder": placeholder(session), "interactive": not session.is_full}
        if session.unsent_text is not None:
            box["value"] = session.unsent_text
        elif clears_box:
            box["value"] = ""
        # Once the first question is sent, the system prompt stays as it is, and a chat without one shows none.
        system: dict[str, Any] = {"interactive": not has_begun}
        if has_begun or session.system_prompt:
            system["value"] = session.system_prompt
        is_shown = is_idle and bool(session.shown)
        return [
            bookmark_of(session).to_storage(),
            gr.update(visible=not has_begun),
            gr.update(visible=not has_begun),
            gr.update(visible=not has_begun or bool(session.system_prompt)),
            gr.update(**system),
            notice_of(session),
            gr.update(**box),
            gr.update(visible=is_idle),
            gr.update(visible=not is_idle),
            gr.update(visible=is_shown),
            gr.update(visible=is_shown),
            gr.update(visible=is_idle and has_begun),
            gr.update(visible=session.can_resume),
        ]

    def show_all(self, session: ChatSession, *, clears_box: bool = False) -> list[Any]:
        """Values of `thread` and `rest`."""
        return [messages(session), *self.show_rest(session, clears_box=clears_box)]


def chat_parts() -> ChatParts:
    """Create the components: settings and conversation in the flow, the box in the dock at the bottom."""
    seat = gr.State(Seat(ChatSession()))
    bookmark = gr.BrowserState(None, storage_key=f"agon-chat{link_to('')}", secret=STORAGE_SECRET)
    with gr.Column(elem_classes=["agon-settings"]):
        with gr.Column(elem_classes=["agon-empty"]) as introduction:
            intro(texts.DIRECT_TITLE, texts.DIRECT_LEAD)
        model = model_choice(texts.MODEL, "model")
        hint = gr.HTML("", elem_id="models-hint", apply_default_css=False)
        with gr.Accordion(texts.CHAT_SYSTEM, open=False, elem_classes=["agon-fold"], elem_id="system-fold") as fold:
            system = gr.Textbox(
                "",
                label=texts.CHAT_SYSTEM_INFO,
                lines=3,
                max_lines=8,
                elem_id="system",
                html_attributes=gr.InputHTMLAttributes(autocomplete="off"),
            )
        parameters = sampling()
    with gr.Column(elem_classes=["agon-settings"]) as beginnings:
        example_buttons = examples()
    conversation = thread(columns=1)
    with gr.Column(elem_id="dock", elem_classes=["agon-narrow"]):
        notice_box = gr.HTML("", elem_id="notice", apply_default_css=False)
        box = prompt(texts.PROMPT_DIRECT)
        with gr.Row(elem_classes=["agon-tools"]):
            resume = gr.Button(texts.RESUME, visible=False, elem_id="resume", scale=0, min_width=0)
            retry = gr.Button(texts.RETRY, visible=False, elem_id="retry", scale=0, min_width=0)
            edit = gr.Button(texts.EDIT_LAST, visible=False, elem_id="edit", scale=0, min_width=0)
            new = gr.Button(texts.NEW_CHAT, visible=False, elem_id="new", scale=0, min_width=0)
    return ChatParts(
        seat=seat,
        bookmark=bookmark,
        introduction=introduction,
        beginnings=beginnings,
        model=model,
        hint=hint,
        parameters=parameters,
        system_fold=fold,
        system=system,
        examples=example_buttons,
        thread=conversation,
        notice=notice_box,
        prompt=box,
        retry=retry,
        edit=edit,
        new=new,
        resume=resume,
    )
