"""Carries out `context_management` of `/v1/messages` (wire/anthropic/context_edits.py), with the counts of tokens that
its conditions and its report need."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from wire.anthropic.answer import AppliedEdit
from wire.anthropic.context_edits import ClearThinking, ClearToolUses, cleared_thoughts, cleared_tool_uses, num_calls
from wire.anthropic.requests import CountTokensRequest, MessagesRequest
from wire.openai.names import Names

Conversation = TypeVar("Conversation", MessagesRequest, CountTokensRequest)

_NAMES = Names({"prompt": "context_management", "truncate_prompt_tokens": "context_management"})


async def edited(
    request: Conversation, count: Callable[[Conversation], Awaitable[int]]
) -> tuple[Conversation, list[AppliedEdit] | None]:
    """The request after its edits, and those that were carried out; None where it asks for none. `count` gives the
    tokens of a request's prompt, and is called only where an edit changes something. Raises ApiError."""
    if request.context_management is None:
        return request, None
    applied: list[AppliedEdit] = []
    for edit in request.context_management.edits:
        contents = [message.content for message in request.messages]
        if isinstance(edit, ClearThinking):
            after, num_cleared = cleared_thoughts(contents, edit)
            counted = "cleared_thinking_turns"
        else:
            after, num_cleared = cleared_tool_uses(contents, edit)
            counted = "cleared_tool_uses"
            if not _may_begin(edit, request):
                continue
        if not num_cleared:
            continue
        shorter = _with_contents(request, after)
        with _NAMES.of_the_client():
            num_before = await count(request)
            num_tokens = num_before - await count(shorter)
        if isinstance(edit, ClearToolUses) and not _is_worth_it(edit, num_before, num_tokens):
            continue
        request = shorter
        applied.append({"type": edit.type, counted: num_cleared, "cleared_input_tokens": max(0, num_tokens)})
    return request, applied


def _may_begin(edit: ClearToolUses, request: MessagesRequest | CountTokensRequest) -> bool:
    """Whether the condition of the edit may hold, as far as is known without counting: no token has no byte."""
    if edit.trigger.type == "tool_uses":
        return num_calls([message.content for message in request.messages]) > edit.trigger.value
    return len(request.model_dump_json()) > edit.trigger.value


def _is_worth_it(edit: ClearToolUses, num_before: int, num_cleared: int) -> bool:
    is_long = edit.trigger.type == "tool_uses" or num_before > edit.trigger.value
    return is_long and num_cleared >= (0 if edit.clear_at_least is None else edit.clear_at_least.value)


def _with_contents(request: Conversation, contents: list[Any]) -> Conversation:
    messages = tuple(
        message.model_copy(update={"content": content})
        for message, content in zip(request.messages, contents, strict=True)
    )
    return request.model_copy(update={"messages": messages})
