"""Renders the chat template of a model folder in a sandbox with bounds on work and output.

A template comes with a downloaded checkpoint, so it is untrusted code: it sees only strings, cannot reach Python
objects, and its loop turns, macro calls, operators and output are bounded. Knows no token ids.
"""

import json
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn, TypeVar

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from engine.errors import CheckpointError, InvalidRequest

MAX_SOURCE_CHARS = 262_144
MAX_OUTPUT_CHARS = 8_388_608  #: far above any context; stops a template that multiplies its input
MAX_STEPS = 1_000_000  #: loop turns and macro calls of one rendering
MAX_SECONDS = 2.0
_MAX_INDENT = 64
_MAX_POWER_BITS = 64
#: Filters and globals that make long strings from short ones and that no chat template needs.
_REMOVED_FILTERS = ("center", "format", "urlize", "wordwrap", "xmlattr")
_REMOVED_GLOBALS = ("lipsum", "cycler", "joiner")

#: What a template can raise on input that it does not expect.
_TEMPLATE_FAILURES = (
    TemplateError,
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    AttributeError,
    RecursionError,
)


class TemplateLimitExceeded(TemplateError):
    """The template does more work than a chat template needs."""


class _Rejected(TemplateError):
    """The template called raise_exception: it does not accept these messages."""


class _Budget:
    """Counts the work of one rendering."""

    def __init__(self) -> None:
        self._steps_left = MAX_STEPS
        self._chars_left = MAX_OUTPUT_CHARS
        self._deadline = time.monotonic() + MAX_SECONDS

    def step(self) -> str:
        self._steps_left -= 1
        if self._steps_left < 0 or (self._steps_left % 256 == 0 and time.monotonic() > self._deadline):
            raise TemplateLimitExceeded("the chat template loops for too long")
        return ""

    def write(self, piece: str) -> str:
        self._chars_left -= len(piece)
        if self._chars_left < 0:
            raise TemplateLimitExceeded("the chat template writes too much")
        if time.monotonic() > self._deadline:
            raise TemplateLimitExceeded("the chat template runs for too long")
        return piece


class _GenerationBlock(Extension):
    """`{% generation %}...{% endgeneration %}` marks assistant text for training; here it is only its content."""

    tags = {"generation"}  # noqa: RUF012 - the base class declares it as an instance attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox of jinja2, with bounds on operators that make large values from small ones."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if isinstance(left, int | float) and isinstance(right, int | float):
            if operator == "**" and (abs(right) > _MAX_POWER_BITS or abs(left) > 2**_MAX_POWER_BITS):
                raise TemplateLimitExceeded("power out of bounds")
            return super().call_binop(context, operator, left, right)
        if operator == "+":
            _check_length(len(left) + len(right))
        elif operator == "*":
            _check_length(len(left) * right if isinstance(right, int) else left * len(right))
        else:
            raise SecurityError(f"operator {operator} is allowed on numbers only")
        return super().call_binop(context, operator, left, right)


_LoopT = TypeVar("_LoopT", nodes.For, nodes.Macro, nodes.CallBlock)


class _Bounded(NodeTransformer):
    """Rewrites a template so that every loop turn and macro call is counted and every `~` is bounded."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        return self._count(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Macro:
        return self._count(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.CallBlock:
        return self._count(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _call("_join", node.nodes, node.lineno)

    def _count(self, node: _LoopT) -> _LoopT:
        self.generic_visit(node)
        node.body.insert(0, nodes.Output([_call("_step", [], node.lineno)], lineno=node.lineno))
        return node


class ChatTemplate:
    """A compiled template. Safe to use from several threads."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """special_tokens: values of the template's variables bos_token, eos_token and so on. Raises CheckpointError."""
        if len(source) > MAX_SOURCE_CHARS:
            raise CheckpointError(f"the chat template has {len(source)} characters, more than {MAX_SOURCE_CHARS}")
        environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationBlock])
        environment.filters["tojson"] = _to_json
        environment.filters["indent"] = _indent
        for name in _REMOVED_FILTERS:
            del environment.filters[name]
        for name in _REMOVED_GLOBALS:
            del environment.globals[name]
        environment.globals["raise_exception"] = _reject
        environment.globals["strftime_now"] = _strftime_now
        try:
            tree = environment.parse(source)
            code = environment.compile(_Bounded().visit(tree).set_environment(environment))
        except (TemplateError, RecursionError) as error:
            raise CheckpointError(f"the chat template does not compile: {error}") from error
        self._template = environment.template_class.from_code(environment, code, environment.make_globals(None))
        self._special_tokens = dict(special_tokens)

    def render(self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool) -> str:
        """Text of the conversation. Raises InvalidRequest where the template rejects messages or exceeds its bounds."""
        budget = _Budget()
        variables: dict[str, Any] = {
            **self._special_tokens,
            "messages": [dict(message) for message in messages],
            "add_generation_prompt": add_generation_prompt,
            "tools": None,
            "documents": None,
            "_step": budget.step,
            "_join": _join,
        }
        try:
            return "".join(map(budget.write, self._template.generate(variables)))
        except _Rejected as error:
            message = f"the model's chat template rejects these messages: {error}"
            raise InvalidRequest(message, param="messages") from None
        except _TEMPLATE_FAILURES as error:
            message = f"the model's chat template fails on these messages: {error}"
            raise InvalidRequest(message, param="messages") from error


def _call(name: str, arguments: list[nodes.Expr], lineno: int) -> nodes.Call:
    return nodes.Call(nodes.Name(name, "load", lineno=lineno), arguments, [], None, None, lineno=lineno)


def _check_length(length: int) -> None:
    if length > MAX_OUTPUT_CHARS:
        raise TemplateLimitExceeded("the chat template builds too long a text")


def _join(*parts: Any) -> str:
    texts = [str(part) for part in parts]
    _check_length(sum(map(len, texts)))
    return "".join(texts)


def _reject(message: str) -> NoReturn:
    raise _Rejected(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """Plain JSON: jinja's own filter escapes for HTML, which no model expects."""
    if indent is not None and not 0 <= indent <= _MAX_INDENT:
        raise SecurityError("indent out of bounds")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _indent(text: str, width: int = 4, first: bool = False, blank: bool = False) -> str:
    if not 0 <= width <= _MAX_INDENT:
        raise SecurityError("indent out of bounds")
    lines = text.split("\n")
    pad = " " * width
    return "\n".join(pad + line if (first or number) and (blank or line) else line for number, line in enumerate(lines))
