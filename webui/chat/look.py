"""How a chat is shown: pure functions from a session to markup and to what is visible."""

from html import escape

from webui import texts
from webui.answers import answer_markdown
from webui.as_written import as_written
from webui.chat.session import ChatExchange, ChatSession
from webui.widgets import notice

Message = dict[str, str]


def messages(session: ChatSession) -> list[Message]:
    """The conversation as the Chatbot takes it: each question, and the answer under the name of its model."""
    found: list[Message] = []
    for number, exchange in enumerate(session.shown, start=1):
        found.append({"role": "user", "content": as_written(exchange.content)})
        found.append({"role": "assistant", "content": _answer(exchange, number)})
    return found


def _answer(exchange: ChatExchange, number: int) -> str:
    """Markdown. The line with the name is one line of HTML, which ends at the empty line behind it. An answer that is
    awaited has none yet: only an empty message is drawn as a typing indicator."""
    said = answer_markdown(exchange.answer, f"thoughts-{number}", failed=texts.CHAT_FAILED)
    if not said:
        return ""
    cut = f" <span>{escape(texts.CUT)}</span>" if exchange.answer.is_cut else ""
    return f'<p class="agon-by"><b>{escape(exchange.model)}</b>{cut}</p>\n\n{said}'


def notice_of(session: ChatSession) -> str:
    """The line above the box."""
    if session.is_interrupted:
        return f'<p class="agon-notice" role="status">{escape(texts.RECONNECTING)}</p>'
    if session.notice is not None:
        return notice(session.notice)
    if session.has_failed_turn:
        return notice(texts.CHAT_TURN_FAILED)
    return ""


def placeholder(session: ChatSession) -> str:
    """What the empty box says."""
    return texts.PROMPT_FULL if session.is_full else texts.PROMPT_DIRECT
