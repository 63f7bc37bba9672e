"""Tools whose input Anthropic defines and the client runs: bash, the text editor and the memory. A model that was not
trained with them gets them as functions, with a description and a schema of what their clients take. Pure."""

from collections.abc import Mapping
from typing import Any

_INTEGER = {"type": "integer"}
_PATH = {"type": "string", "description": "path of a file or folder"}
_RANGE = {"type": "array", "items": _INTEGER, "description": "first and last line to show, from 1; -1: to the end"}
_EDITING: Mapping[str, Any] = {
    "file_text": {"type": "string", "description": "whole text of the file, for create"},
    "old_str": {"type": "string", "description": "text to replace, which stands there once, for str_replace"},
    "new_str": {"type": "string", "description": "text in its place, for str_replace; in an editor, text to insert"},
    "insert_line": {"type": "integer", "description": "line after which to insert; 0: at the beginning, for insert"},
}


def _commands(names: list[str], required: list[str], **others: Any) -> dict[str, Any]:
    command = {"type": "string", "enum": names}
    properties = {"command": command, "path": _PATH, "view_range": _RANGE, **_EDITING, **others}
    return {"type": "object", "properties": properties, "required": ["command", *required]}


_EDITOR = _commands(["view", "create", "str_replace", "insert"], ["path"])
_UNDOING_EDITOR = _commands(["view", "create", "str_replace", "insert", "undo_edit"], ["path"])
_MEMORY = _commands(
    ["view", "create", "str_replace", "insert", "delete", "rename"],
    [],
    insert_text={"type": "string", "description": "text to insert, for insert"},
    old_path={"type": "string", "description": "path as it is, for rename"},
    new_path={"type": "string", "description": "path as it shall be, for rename"},
)
_BASH: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "description": "what to run"},
        "restart": {"type": "boolean", "description": "true: begin a new session"},
    },
}
_EDITS = "View and edit text files: view, create, str_replace and insert."
_BASHES = "Run commands in a bash session that lasts."
_REMEMBERS = "Keep notes in files under /memories: view, create, str_replace, insert, delete and rename."

#: By type: name, description and schema of the input.
CLIENT_TOOLS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "bash_20241022": ("bash", _BASHES, _BASH),
    "bash_20250124": ("bash", _BASHES, _BASH),
    "text_editor_20241022": ("str_replace_editor", _EDITS, _UNDOING_EDITOR),
    "text_editor_20250124": ("str_replace_editor", _EDITS, _UNDOING_EDITOR),
    "text_editor_20250429": ("str_replace_based_edit_tool", _EDITS, _EDITOR),
    "text_editor_20250728": ("str_replace_based_edit_tool", _EDITS, _EDITOR),
    "memory_20250818": ("memory", _REMEMBERS, _MEMORY),
}
