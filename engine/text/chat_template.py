"""Renders the chat template of a model folder. The template comes with a downloaded checkpoint, so it is untrusted
code and runs in the sandbox of template_sandbox.py. Knows no token ids.

Templates differ in how they read tool calls of earlier answers: most want arguments as objects, some as JSON texts, and
some fail on an answer without content, with thoughts beside it, or on a tool without a description; and some reject or
leave out system messages, all of them or those behind other messages. Which it is, is found out with small
conversations.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import product
from typing import Any

from jinja2 import TemplateError, meta, nodes
from jinja2.exceptions import SecurityError

from engine.errors import CheckpointError, InvalidRequest
from engine.text.messages import function_of
from engine.text.reasoning_effort import SWITCHES
from engine.text.template_rewriting import bounded_tree
from engine.text.template_sandbox import Budget, Rejected, TemplateLimitExceeded, TemplateSandbox
from engine.text.thoughts import KNOWN_TAGS

MAX_SOURCE_CHARS = 131_072
THOUGHTS_KEY = "reasoning_content"  #: of a message: what the model thought before that answer
#: Under which keys templates look for it, gpt-oss's under the second.
_THOUGHTS_KEYS = (THOUGHTS_KEY, "thinking", "reasoning")
#: Stands at the end of the last message where its text is to be continued. A noncharacter, as no message has it.
CONTINUED_HERE = "\ufdd2"
ROLES = ("system", "developer", "user", "assistant", "tool")  #: that templates know
_MAX_REASON_CHARS = 300
_OWN_NAMES = frozenset({"messages", "add_generation_prompt", "tools", "documents"})

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
_UNDESCRIBED_TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def _call_probe(arguments: object, content: str | None, **beside: str) -> list[dict[str, Any]]:
    """A conversation with a tool call and its result. beside: more of the message that calls."""
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return [
        {"role": "user", "content": "."},
        {"role": "assistant", "content": content, **beside, "tool_calls": [call]},
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
            self.literals = _literals(tree)  #: the texts in it
            #: Under which it may look for something in an object.
            self.names = self.literals.union(node.attr for node in tree.find_all(nodes.Getattr))
            code = self._sandbox.compile(bounded_tree(tree, self._sandbox))
        except _COMPILE_FAILURES as error:
            raise CheckpointError(f"the chat template does not compile: {_reason(error)}") from error
        template = self._sandbox.template_class
        self._template = template.from_code(self._sandbox, code, self._sandbox.make_globals(None))
        self._special_tokens = dict(special_tokens)
        #: Under which key it reads the thoughts of earlier answers; None: it does not.
        self.thoughts_key = next((key for key in _THOUGHTS_KEYS if key in self.names), None)
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
        OpenAI's API. Raises InvalidRequest where the template rejects messages, fails on a tool or exceeds its bounds,
        and for kwargs that would replace the conversation."""
        if taken := sorted((_OWN_NAMES | self._special_tokens.keys()) & (kwargs or {}).keys()):
            raise InvalidRequest(f"{taken[0]} is not an option of the chat template", param="chat_template_kwargs")
        try:
            return self._written(messages, add_generation_prompt, kwargs, tools)
        except Rejected as error:
            message = f"the model's chat template rejects these messages: {error}"
            raise InvalidRequest(message, param="messages") from None
        except _TEMPLATE_FAILURES as error:
            message, param = f"the model's chat template fails on these messages: {_reason(error)}", "messages"
            is_limit = isinstance(error, TemplateLimitExceeded)
            if not is_limit and (found := self._failing_tool(tools or ())) is not None:
                param, name = found
                message = f"the model's chat template fails on the tool {name}: {_reason(error)}"
            raise InvalidRequest(message, param=param) from error

    def _written(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        kwargs: Mapping[str, object] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        budget: Budget | None = None,
    ) -> str:
        """As `render`. Raises _TEMPLATE_FAILURES. budget: one that has been opened; None: a new one."""
        budget = budget or self._sandbox.open_budget()
        values: dict[str, Any] = {
            **(kwargs or {}),
            **self._special_tokens,
            "messages": [dict(message) for message in messages],
            "add_generation_prompt": add_generation_prompt,
            "tools": [dict(tool) for tool in tools] if tools else None,
            "documents": None,
        }
        return "".join(map(budget.write, self._template.generate(values)))

    def _failing_tool(self, tools: Sequence[Mapping[str, Any]]) -> tuple[str, str] | None:
        """The field and the name of the first tool that the template cannot tell of; None: it can tell of each, or
        fails without tools, too."""
        budget = self._sandbox.open_budget()

        def fails(*tools: Mapping[str, Any]) -> bool:
            try:
                self._written(_DIALOGUE_PROBE[:1], tools=tools, budget=budget)
            except _TEMPLATE_FAILURES as error:
                return not isinstance(error, TemplateLimitExceeded | Rejected)
            return False

        for place, tool in enumerate(() if fails() else tools):
            if fails(tool):
                function = function_of(tool)
                plain = {**tool, "function": {**function, "parameters": {"type": "object", "properties": {}}}}
                field = "" if fails(plain) else ".parameters"
                return f"tools.{place}.function{field}", str(function.get("name"))
        return None

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
    def wants_thoughts_alone(self) -> bool:
        """Whether it rejects an answer with calls that has thoughts and content."""
        if self.thoughts_key is None:
            return False
        arguments = "{}" if self.call_style[0] else {}
        both, alone = (
            self._tried(_call_probe(arguments, content, **{self.thoughts_key: "."}), tools=[_PROBED_TOOL])
            for content in (".", "")
        )
        return both is None and alone is not None

    @cached_property
    def needs_descriptions(self) -> bool:
        """Whether it fails on a tool without a description."""
        without, with_one = (self._tried(_DIALOGUE_PROBE[:1], [tool]) for tool in (_UNDESCRIBED_TOOL, _PROBED_TOOL))
        return without is None and with_one is not None

    def probed(self) -> Iterator[str]:
        """Renderings of small conversations: what they hold beside dots, the template has written."""
        arguments = "{}" if self.call_style[0] else {}
        thoughts = {} if self.thoughts_key is None else {self.thoughts_key: "."}
        call = _call_probe(arguments, "" if self.call_style[1] else None, **thoughts)
        answered = [{"role": "assistant", "content": ".", **thoughts}, _DIALOGUE_PROBE[0]]
        conversations: list[tuple[list[dict[str, Any]], list[dict[str, Any]] | None]] = [
            ([{"role": role, "content": "."}, _DIALOGUE_PROBE[0], *answered], tools)
            for role in ("system", "developer")
            for tools in (None, [_PROBED_TOOL])
        ]
        conversations += [(call, [_PROBED_TOOL]), ([*call, *answered], [_PROBED_TOOL]), (_DIALOGUE_PROBE[:2], None)]
        switches = [name for name in SWITCHES if name in self.variables]
        values = [{}, *({name: value for name in switches} for value in (True, False) if switches)]
        budget = self._sandbox.open_budget()
        for (messages, tools), kwargs, opens in product(conversations, values, (True, False)):
            with suppress(*_TEMPLATE_FAILURES):
                yield self._written(messages, opens, kwargs, tools, budget)

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
            return self._written(messages, tools=tools)
        except _TEMPLATE_FAILURES:
            return None

    def check_bounds(self) -> None:
        """Raise CheckpointError for a template that exceeds its bounds on the shortest conversation: every request
        would cost as much. One that only rejects or fails on it is accepted, because it may want other messages."""
        try:
            self.render([{"role": "user", "content": "."}], add_generation_prompt=True)
        except InvalidRequest as error:
            if isinstance(error.__cause__, TemplateLimitExceeded | SecurityError):
                raise CheckpointError(f"the chat template is refused: {_reason(error.__cause__)}") from None


def _literals(tree: nodes.Template) -> frozenset[str]:
    """The texts that a template is made of, those in its expressions included."""
    written = (node.data for node in tree.find_all(nodes.TemplateData))
    values = (node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str))
    return frozenset((*written, *values))


def _reason(error: BaseException) -> str:
    """One line of bounded length: a message may quote values of the template."""
    return " ".join(str(error)[:_MAX_REASON_CHARS].split()) or type(error).__name__
