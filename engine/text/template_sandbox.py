"""The sandbox in which a chat template of unknown origin runs: what it may call, how much it may compute and build.

jinja2's sandbox keeps a template away from Python's objects. This one also bounds time and memory: loop turns, macro
calls and blocks are counted; every operation that makes a text or a list is checked before it allocates where the
result can be much larger than the operands, and charged afterwards. Methods and filters are those on a list.
"""

import functools
import json
import math
import threading
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import islice
from typing import Any, NoReturn

from jinja2 import TemplateError, Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MAX_CHARS = 8_388_608  #: of one text, and of all texts in one list; far above any context
MAX_BUILT_CHARS = 8 * MAX_CHARS  #: of all texts that one rendering makes, those that it drops included
MAX_ITEMS = 100_000  #: of one list, the items of the lists in it included
MAX_STEPS = 1_000_000  #: loop turns, macro calls and blocks of one rendering
MAX_SECONDS = 2.0
_MAX_INDENT = 64
_MAX_BITS = 256  #: of an integer
_MAX_PATTERN_CHARS = 256  #: of strftime_now: the result has up to 256 times as many
_MAX_SEPARATOR_CHARS = 16
_MAX_MESSAGE_CHARS = 500
_MAX_DIGITS = 15


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Methods that a template may call, by the type of the object. None of the others is needed, and some turn a short
#: text or a number into gigabytes (ljust, zfill, expandtabs, translate, to_bytes, format).
_METHODS: dict[type, frozenset[str]] = {
    str: _names(
        "capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit islower isnumeric "
        "isspace istitle isupper join lower lstrip partition removeprefix removesuffix replace rfind rindex rpartition "
        "rsplit rstrip split splitlines startswith strip swapcase title upper"
    ),
    dict: _names("get items keys values"),
    list: _names("count index"),
    tuple: _names("count index"),
}
_FILTERS = _names(
    "abs capitalize count d default dictsort first float groupby int items last length lower map max min reject "
    "rejectattr reverse select selectattr sort string title trim truncate unique upper"
)
#: Those among them that make a list of a text's characters or words.
_LISTING_FILTERS = _names("groupby map max min reject rejectattr select selectattr sort title unique")
#: Methods that compare each character of a text with each one of their argument.
_SLOW_METHODS = _names("lstrip rfind rindex rpartition rsplit rstrip strip")
_MAX_COMPARISONS = 100_000_000
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


class TemplateLimitExceeded(TemplateError):
    """The template does more work than a chat template needs."""


class Rejected(TemplateError):
    """The template called raise_exception: it does not accept these messages."""


class Budget:
    """Counts the work of one rendering, or of one compilation."""

    def __init__(self) -> None:
        self._steps_left = MAX_STEPS
        self._written_left = MAX_CHARS
        self._built_left = MAX_BUILT_CHARS
        self._deadline = time.monotonic() + MAX_SECONDS

    def step(self) -> str:
        """Count a loop turn or a call; the result is the empty text, for use as a template's output."""
        self._steps_left -= 1
        if self._steps_left < 0:
            raise TemplateLimitExceeded("the chat template loops for too long")
        if self._steps_left % 256 == 0:
            self.check_time()
        return ""

    def write(self, piece: str) -> str:
        """Count a piece of the output."""
        self._written_left -= len(piece)
        if self._written_left < 0:
            raise TemplateLimitExceeded("the chat template writes too much")
        self.check_time()
        return piece

    def build(self, num_chars: int) -> None:
        """Count a text that is built; call it before the text is allocated where it may be long."""
        self._built_left -= num_chars
        if num_chars > MAX_CHARS or self._built_left < 0:
            raise TemplateLimitExceeded("the chat template builds too long a text")

    def check_time(self) -> None:
        """Raise TemplateLimitExceeded after MAX_SECONDS."""
        if time.monotonic() > self._deadline:
            raise TemplateLimitExceeded("the chat template runs for too long")


class _GenerationBlock(Extension):
    """`{% generation %}...{% endgeneration %}` marks assistant text for training; here it is only its content."""

    tags = {"generation"}  # noqa: RUF012 - the base class declares it as an instance attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """The environment of one chat template. Several threads may render at once: each has its budget in `local`."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols, _GenerationBlock],
            finalize=_checked_output,
            optimized=False,  # constants would be folded without a budget
        )
        self._local = threading.local()
        own = {
            "join": self._join_filter,
            "replace": self._replace_filter,
            "list": self._list_filter,
            "indent": self._indent_filter,
            "tojson": _to_json,
            "sum": _sum,
            "round": _round,
            "e": self._escape_filter,
            "escape": self._escape_filter,
            "forceescape": self._escape_filter,
            "safe": str,
        }
        kept = {name: self.filters[name] for name in _FILTERS}
        self.filters = {name: self._bounded(name, function) for name, function in (kept | own).items()}
        self.globals = {name: self.globals[name] for name in ("range", "dict", "namespace")}
        self.globals["raise_exception"] = _reject
        self.globals["strftime_now"] = _strftime_now

    def open_budget(self) -> Budget:
        """A new budget, to which all work of this thread is charged from now on."""
        self._local.budget = Budget()
        return self.budget

    @property
    def budget(self) -> Budget:
        """The budget of this thread's rendering."""
        budget: Budget = self._local.budget
        return budget

    # Called by compiled templates; template_rewriting.py adds the calls of the first three.

    def count_step(self) -> str:
        """Count a loop turn, a macro call or a block."""
        return self.budget.step()

    def joined(self, *parts: Any) -> str:
        """The operator `~`."""
        return self.concat([str(_checked_output(part)) for part in parts])

    def charged(self, value: Any) -> Any:
        """Charge a value that has just been made; also a comparison, whose texts may be long."""
        self.budget.check_time()
        if isinstance(value, str):
            self.budget.build(len(value))
        elif isinstance(value, list | tuple | dict):
            check_size(value)
        return value

    def concat(self, pieces: Iterable[str]) -> str:
        """The text of a macro, a block or an assignment from its pieces."""
        listed = list(pieces)
        self.budget.build(sum(map(len, listed)))
        return "".join(listed)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Operators on numbers of bounded size; `+` and `*` on texts and lists as well."""
        if isinstance(left, int | float) and isinstance(right, int | float):
            _check_numbers(operator, left, right)
        elif operator == "+" and isinstance(left, str) and isinstance(right, str):
            self.budget.build(len(left) + len(right))
        elif operator == "+" and isinstance(left, list | tuple) and isinstance(right, list | tuple):
            _check_length(len(left) + len(right))
            return self.charged(super().call_binop(context, operator, left, right))
        elif operator == "*":
            text, times = (right, left) if isinstance(left, int) else (left, right)
            if not (isinstance(text, str) and isinstance(times, int)):
                raise SecurityError("operator * is allowed on numbers, and on a text and a number")
            self.budget.build(len(text) * max(0, times))
        else:
            raise SecurityError(f"operator {operator} is not allowed on these values")
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Only the methods of _METHODS; other attributes as jinja2 decides."""
        for kind, allowed in _METHODS.items():
            if isinstance(obj, kind):
                return attr in allowed
        return not isinstance(obj, int | float | bytes | range) and super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:
        """str.format and format_map are no methods that a template may call."""
        return

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a macro, a method or a global; charges what it returns."""
        owner = getattr(__obj, "__self__", None)
        if owner is __self:  # a call that template_rewriting.py has added
            return __obj(*args)
        if isinstance(owner, str):
            __self._check_text_method(__obj.__name__, owner, args, kwargs)
        return __self.charged(super().call(__context, __obj, *args, **kwargs))

    def _check_text_method(self, name: str, text: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Refuse a call that would take too long or whose result would be too large; it has not been made yet."""
        if name in _SLOW_METHODS and args and isinstance(args[0], str):
            _check_comparisons(text, args[0])
        match name:
            case "replace":
                _check_replacement(self.budget, text, *args[:2])
            case "join" if args:
                if not isinstance(args[0], list | tuple | dict | str):
                    raise SecurityError("join needs a list")
                _check_length(len(args[0]))
                self.budget.build(
                    len(text) * len(args[0]) + sum(len(part) for part in args[0] if isinstance(part, str))
                )
            case "split" | "rsplit":
                most = args[1] if len(args) > 1 else kwargs.get("maxsplit", -1)
                if not isinstance(most, int) or not 0 <= most <= MAX_ITEMS:
                    _check_length(_num_parts(text, args[0] if args else kwargs.get("sep")))
            case "splitlines":
                _check_length(sum(map(text.count, _LINE_ENDS)))

    def _bounded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The filter, charged for its results."""

        @functools.wraps(function)  # keeps jinja2's mark of filters that take the context first
        def bounded(*args: Any, **kwargs: Any) -> Any:
            if name in _LISTING_FILTERS:
                for argument in args[:2]:  # the second one where the first is the context
                    if isinstance(argument, str):
                        _check_length(len(argument))
            elif name == "trim" and len(args) > 1 and isinstance(args[1], str):
                _check_comparisons(str(args[0]), args[1])
            if any(isinstance(argument, Namespace) for argument in (*args, *kwargs.values())):
                raise SecurityError(f"the filter {name} takes no namespace")
            return self.charged(function(*args, **kwargs))

        return bounded

    def _join_filter(self, value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
        items = _listed(value)
        if attribute is not None:
            items = [self.getitem(item, attribute) for item in items]
        texts = [str(_checked_output(item)) for item in items]
        self.budget.build(len(str(d)) * len(texts) + sum(map(len, texts)))
        return str(d).join(texts)

    def _replace_filter(self, text: str, old: str, new: str, count: int | None = None) -> str:
        text, old, new = str(text), str(old), str(new)
        _check_replacement(self.budget, text, old, new)
        return text.replace(old, new, -1 if count is None else count)

    def _escape_filter(self, value: Any) -> str:
        text = str(_checked_output(value))
        self.budget.build(len(text) + 5 * sum(map(text.count, "<>&'\"")))
        return str(FILTERS["escape"](text))

    def _list_filter(self, value: Iterable[Any]) -> list[Any]:
        return _listed(value)

    def _indent_filter(self, text: str, width: int = 4, first: bool = False, blank: bool = False) -> str:
        if not 0 <= width <= _MAX_INDENT:
            raise SecurityError("indent out of bounds")
        _check_length(text.count("\n"))
        self.budget.build(len(text) + width * (text.count("\n") + 1))
        pad, lines = " " * width, text.split("\n")
        return "\n".join(pad + line if (first or i) and (blank or line) else line for i, line in enumerate(lines))


def check_size(value: Any) -> None:
    """Raise TemplateLimitExceeded for a list of too many items or characters, those of the lists in it included: a
    list that holds another one twice, and so on, has exponentially many."""
    num_items = num_chars = 0
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            num_chars += len(item)
        elif isinstance(item, list | tuple | dict):
            num_items += len(item)
            if num_items <= MAX_ITEMS:
                pending.extend(item if not isinstance(item, dict) else (*item, *item.values()))
        elif isinstance(item, range):
            num_items += len(item)
        elif not (item is None or isinstance(item, bool | int | float | Undefined)):
            raise SecurityError(f"a list cannot hold a {type(item).__name__}")
        if num_items > MAX_ITEMS or num_chars > MAX_CHARS:
            raise TemplateLimitExceeded("the chat template builds too long a list")


def _check_length(length: int) -> None:
    if length > MAX_ITEMS:
        raise TemplateLimitExceeded("the chat template builds too long a list")


def _check_numbers(operator: str, left: float, right: float) -> None:
    if operator == "**" and abs(right) > _MAX_BITS:
        raise TemplateLimitExceeded("power out of bounds")
    bits = [number.bit_length() for number in (left, right) if isinstance(number, int)]
    if any(count > _MAX_BITS for count in bits) or (operator == "**" and bits and bits[0] * abs(right) > _MAX_BITS):
        raise TemplateLimitExceeded("number out of bounds")


def _check_comparisons(text: str, argument: str) -> None:
    if len(text) * len(argument) > _MAX_COMPARISONS:
        raise TemplateLimitExceeded("the chat template runs for too long")


def _num_parts(text: str, separator: Any) -> int:
    """At least the number of parts into which the separator cuts a text, or MAX_ITEMS + 1."""
    if isinstance(separator, str):
        return text.count(separator)
    return len(text) // 2 if len(text) <= 2 * MAX_ITEMS else len(text.split(None, MAX_ITEMS + 1))


def _check_replacement(budget: Budget, text: str, old: Any = None, new: Any = None) -> None:
    if isinstance(old, str) and isinstance(new, str):
        budget.build(len(text) + max(0, len(new) - len(old)) * text.count(old))


def _checked_output(value: Any) -> Any:
    """A value that may be turned into text: numbers, texts, bounded lists."""
    if isinstance(value, list | tuple | dict):
        check_size(value)
    elif not (value is None or isinstance(value, str | bool | int | float | range | Undefined)):
        raise SecurityError(f"a {type(value).__name__} is no text")
    return value


def _listed(value: Iterable[Any]) -> list[Any]:
    items = list(islice(iter(value), MAX_ITEMS + 1))
    _check_length(len(items))
    return items


def _sum(value: Iterable[Any], attribute: str | None = None, start: float = 0) -> Any:
    items = _listed(value)
    if attribute is not None:
        items = [item.get(attribute, 0) if isinstance(item, dict) else 0 for item in items]
    if not all(isinstance(item, int | float) for item in (*items, start)):
        raise SecurityError("only numbers can be added up")
    return sum(items, start)


def _round(value: float, precision: int = 0, method: str = "common") -> float:
    if not 0 <= precision <= _MAX_DIGITS:
        raise SecurityError("precision out of bounds")
    scale = float(10**precision)
    match method:
        case "ceil":
            return math.ceil(value * scale) / scale
        case "floor":
            return math.floor(value * scale) / scale
        case _:
            return round(float(value), precision)


def _reject(message: Any = "") -> NoReturn:
    raise Rejected(str(_checked_output(message))[:_MAX_MESSAGE_CHARS])


def _strftime_now(pattern: str) -> str:
    if len(pattern) > _MAX_PATTERN_CHARS:
        raise SecurityError("strftime_now: the pattern is too long")
    return datetime.now().strftime(pattern)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON: jinja's own filter escapes for HTML, which no model expects."""
    if indent is not None and not 0 <= indent <= _MAX_INDENT:
        raise SecurityError("indent out of bounds")
    if separators is not None and sum(map(len, separators)) > _MAX_SEPARATOR_CHARS:
        raise SecurityError("separators out of bounds")
    text = _checked_output(value)
    return json.dumps(text, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
