"""Renders the chat template of a model folder. The template comes with a downloaded checkpoint, so it is untrusted
code and runs in the sandbox of template_sandbox.py. Knows no token ids.

Templates differ in how they read tool calls of earlier answers: most want arguments as objects, some as JSON texts, and
some fail on an answer without content; and some reject or leave out system messages, all of them or those behind other
messages. Which it is, is found out with small conversations.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from jinja2 import TemplateError, meta
from jinja2.exceptions import SecurityError

from engine.errors import CheckpointError, InvalidRequest
from engine.text.template_rewriting import bounded_tree
from engine.text.template_sandbox import Rejected, TemplateLimitExceeded, TemplateSandbox
from engine.text.thoughts import KNOWN_TAGS

MAX_SOURCE_CHARS = 131_072
THOUGHTS_KEY = "reasoning_content"  #: of a message: what the model thought before that answer
#: Stands at the end of the last message where its text is to be continued. A noncharacter, as no message has it.
CONTINUED_HERE = "\ufdd2"
_MAX_REASON_CHARS = 300

#: What a template can raise on input that it does not expect.
_TEMPLATE_FAILURES = (
    TemplateError,
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    AttributeError,
    RecursionError,
    MemoryError,
)
#: What compiling can raise: jinja2's parser, and Python's compiler on the code that jinja2 makes.
_COMPILE_FAILURES = (*_TEMPLATE_FAILURES, SyntaxError)


_PROBED_TOOL = {
    "type": "function",
    "function": {"name": "f", "description": ".", "parameters": {"type": "object", "properties": {}}},
}


def _call_probe(arguments: object, content: str | None) -> list[dict[str, Any]]:
    """A conversation with a tool call and its result."""
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return [
        {"role": "user", "content": "."},
        {"role": "assistant", "content": content, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "abcdefghi", "name": "f", "content": "."},
    ]


_SYSTEM_PROBE = {"role": "system", "content": "probed"}
_DIALOGUE_PROBE = [{"role": role, "content": "."} for role in ("user", "assistant", "user")]


class ChatTemplate:
    """A compiled template. Safe to use from several threads."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """special_tokens: values of the template's variables bos_token, eos_token and so on. Raises CheckpointError."""
        if len(source) > MAX_SOURCE_CHARS:
            raise CheckpointError(f"the chat template has more than {MAX_SOURCE_CHARS} characters")
        self._sandbox = TemplateSandbox()
        self._sandbox.open_budget()  # compiling computes the constants of the template
        try:
            tree = self._sandbox.parse(source)
            #: Names that the template takes from outside, those that a rendering always has included.
            self.variables = frozenset(meta.find_undeclared_variables(tree))
            code = self._sandbox.compile(bounded_tree(tree, self._sandbox))
        except _COMPILE_FAILURES as error:
            raise CheckpointError(f"the chat template does not compile: {_reason(error)}") from error
        template = self._sandbox.template_class
        self._template = template.from_code(self._sandbox, code, self._sandbox.make_globals(None))
        self._special_tokens = dict(special_tokens)
        #: Whether it may put the thoughts of earlier answers, which messages have under THOUGHTS_KEY, into the prompt.
        self.reads_thoughts = THOUGHTS_KEY in source
        self.source = source
        self.tags = next((tags for tags in KNOWN_TAGS if tags.end in source), None)  #: None: it names no tags

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool,
        kwargs: Mapping[str, object] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """Text of the conversation. kwargs: more variables of the template. tools: definitions of functions, as in
        OpenAI's API. Raises InvalidRequest where the template rejects messages or exceeds its bounds, and for kwargs
        that would replace the conversation."""
        budget = self._sandbox.open_budget()
        own: dict[str, Any] = {
            **self._special_tokens,
            "messages": [dict(message) for message in messages],
            "add_generation_prompt": add_generation_prompt,
            "tools": [dict(tool) for tool in tools] if tools else None,
            "documents": None,
        }
        if taken := sorted(own.keys() & (kwargs or {}).keys()):
            raise InvalidRequest(f"{taken[0]} is not an option of the chat template", param="chat_template_kwargs")
        try:
            return "".join(map(budget.write, self._template.generate({**(kwargs or {}), **own})))
        except Rejected as error:
            message = f"the model's chat template rejects these messages: {error}"
            raise InvalidRequest(message, param="messages") from None
        except _TEMPLATE_FAILURES as error:
            message = f"the model's chat template fails on these messages: {_reason(error)}"
            raise InvalidRequest(message, param="messages") from error

    @property
    def knows_tools(self) -> bool:
        """Whether it can tell the model of tools."""
        return "tools" in self.variables

    @cached_property
    def call_style(self) -> tuple[bool, bool]:
        """How it wants tool calls of earlier answers: whether arguments are a JSON text, and whether their content is
        an empty text rather than None."""
        ways: tuple[tuple[bool, object], ...] = ((False, {}), (True, "{}"))
        empty = [self._probed(arguments, "") for _, arguments in ways]
        for (is_text, arguments), beside in zip(ways, empty, strict=True):
            # A template that writes out whatever the content is would write "None".
            without = self._probed(arguments, None)
            if without is not None and (beside is None or without.count("None") <= beside.count("None")):
                return is_text, False
        styles = [(is_text, True) for (is_text, _), text in zip(ways, empty, strict=True) if text is not None]
        return styles[0] if styles else (False, False)

    @cached_property
    def reads_system(self) -> tuple[bool, bool]:
        """Whether it shows the model a system message that begins the conversation, and those behind other messages."""
        first = self._tried([_SYSTEM_PROBE, *_DIALOGUE_PROBE])
        late = self._tried([*_DIALOGUE_PROBE[:2], _SYSTEM_PROBE, _DIALOGUE_PROBE[2], _SYSTEM_PROBE])
        if first is None and late is None and self._tried(_DIALOGUE_PROBE) is None:
            return True, True  # it wants conversations of another kind, and says so itself
        return _SYSTEM_PROBE["content"] in (first or ""), (late or "").count(_SYSTEM_PROBE["content"]) == 2

    def _probed(self, arguments: object, content: str | None) -> str | None:
        return self._tried(_call_probe(arguments, content), tools=[_PROBED_TOOL])

    def _tried(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> str | None:
        try:
            return self.render(messages, add_generation_prompt=True, tools=tools)
        except InvalidRequest:
            return None

    def check_bounds(self) -> None:
        """Raise CheckpointError for a template that exceeds its bounds on the shortest conversation: every request
        would cost as much. One that only rejects or fails on it is accepted, because it may want other messages."""
        try:
            self.render([{"role": "user", "content": "."}], add_generation_prompt=True)
        except InvalidRequest as error:
            if isinstance(error.__cause__, TemplateLimitExceeded | SecurityError):
                raise CheckpointError(f"the chat template is refused: {_reason(error.__cause__)}") from None


def _reason(error: BaseException) -> str:
    """One line of bounded length: a message may quote values of the template."""
    return " ".join(str(error)[:_MAX_REASON_CHARS].split()) or type(error).__name__
