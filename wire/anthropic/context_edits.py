"""`context_management` of `/v1/messages`: which old results of tools and which old thoughts are left out of the prompt.
Pure: who calls it counts tokens where an edit depends on them."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from wire.anthropic.blocks import ContentBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from wire.openai.tolerance import Tolerant, refused

CLEARED = "[Cleared: this result of an earlier call was left out to save room.]"
_CLEAR_TOOLS, _CLEAR_THINKING = "clear_tool_uses_20250919", "clear_thinking_20251015"


class Trigger(Tolerant):
    """From which size on the edit is carried out: tokens of the prompt, or calls in the history."""

    type: Literal["input_tokens", "tool_uses"]
    value: int = Field(ge=0)


class KeepToolUses(Tolerant):
    """How many of the newest calls keep their results."""

    type: Literal["tool_uses"]
    value: int = Field(ge=0)


class ClearAtLeast(Tolerant):
    """The edit is left out if it would clear fewer tokens."""

    type: Literal["input_tokens"]
    value: int = Field(ge=0)


class ClearToolUses(Tolerant):
    """The oldest results of tools are replaced by a remark, and on demand the inputs of their calls are emptied."""

    type: Literal["clear_tool_uses_20250919"]
    trigger: Trigger = Trigger(type="input_tokens", value=100_000)
    keep: KeepToolUses = KeepToolUses(type="tool_uses", value=3)
    clear_at_least: ClearAtLeast | None = None
    exclude_tools: tuple[str, ...] = Field(default=(), description="their calls and results stay")
    clear_tool_inputs: bool | tuple[str, ...] = Field(default=False, description="of all cleared calls, or these tools")


class KeepThinking(Tolerant):
    """How many of the newest answers keep their thoughts."""

    type: Literal["thinking_turns", "all"]
    value: int | None = Field(default=None, ge=1)


class ClearThinking(Tolerant):
    """The thoughts of older answers are left out."""

    type: Literal["clear_thinking_20251015"]
    keep: Annotated[KeepThinking, BeforeValidator(lambda value: {"type": "all"} if value == "all" else value)] = (
        KeepThinking(type="thinking_turns", value=1)
    )


def _known(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind not in (_CLEAR_TOOLS, _CLEAR_THINKING):
        raise refused("type", f"{kind[:40]!r} is not carried out here: leave the edit out and summarise in the client.")
    return value


def _kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return "of thoughts" if kind == _CLEAR_THINKING else "of tools"


Edit = Annotated[
    Annotated[ClearToolUses, Tag("of tools")] | Annotated[ClearThinking, Tag("of thoughts")],
    Discriminator(_kind),
    BeforeValidator(_known),
]


class ContextManagement(Tolerant):
    """What may be left out of the conversation."""

    edits: tuple[Edit, ...] = Field(default=(), max_length=16, fail_fast=True)


Blocks = Sequence[str | Sequence[ContentBlock]]  #: the contents of a conversation's messages
Contents = list[str | tuple[ContentBlock, ...]]


def cleared_tool_uses(contents: Blocks, edit: ClearToolUses) -> tuple[Contents, int]:
    """The contents after the edit, whatever its trigger, and how many calls were cleared."""
    calls = [block for content in contents for block in content if isinstance(block, ToolUseBlock)]
    kept = {call.id for call in calls[max(0, len(calls) - edit.keep.value) :]}
    found = {call.id: call for call in calls if call.id not in kept and call.name not in edit.exclude_tools}
    cleared: set[str] = set()

    def changed(block: Any) -> Any:
        if isinstance(block, ToolResultBlock) and block.tool_use_id in found and block.content != CLEARED:
            cleared.add(block.tool_use_id)
            return block.model_copy(update={"content": CLEARED})
        if isinstance(block, ToolUseBlock) and block.id in found and _clears_input(edit, block.name):
            return block.model_copy(update={"input": {}})
        return block

    edited: Contents = [
        content if isinstance(content, str) else tuple(changed(block) for block in content) for content in contents
    ]
    return edited, len(cleared)


def _clears_input(edit: ClearToolUses, name: str) -> bool:
    inputs = edit.clear_tool_inputs
    return inputs if isinstance(inputs, bool) else name in inputs


def cleared_thoughts(contents: Blocks, edit: ClearThinking) -> tuple[Contents, int]:
    """The contents after the edit, and of how many answers the thoughts were left out."""
    thinking = [place for place, content in enumerate(contents) if any(isinstance(b, ThinkingBlock) for b in content)]
    old = set() if edit.keep.type == "all" else set(thinking[: max(0, len(thinking) - (edit.keep.value or 1))])
    edited: Contents = [
        content
        if isinstance(content, str)
        else tuple(block for block in content if place not in old or not isinstance(block, ThinkingBlock))
        for place, content in enumerate(contents)
    ]
    return edited, len(old)


def num_calls(contents: Blocks) -> int:
    """The calls in the history."""
    return sum(isinstance(block, ToolUseBlock) for content in contents for block in content)
