"""Grammars of tool calls, made from the functions' JSON schemas and a model's format: of outputs that are calls and
nothing else, and of free outputs in which a call of a strict function follows its schema.

The language is llguidance's dialect of Lark. Arguments follow the JSON schema of their function; formats without JSON
take one parameter at a time, so their schemas must be plain objects.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, get_args

from engine.errors import InvalidRequest
from engine.json_schemas import servable
from engine.sampling_params import ToolFormat, ToolFunction
from engine.text.tool_calls import deepseek, gemma, glm, harmony, kimi, mistral, phi
from engine.text.tool_calls.gemma_grammars import gemma_arguments
from engine.text.tool_calls.schemas import is_text, parsed, resolved

#: Forms whose calls are closed before max_tokens would cut them: those without texts outside JSON, of which the
#: shortest end is hard to find.
CLOSED = frozenset(get_args(ToolFormat)) - {"gemma", "glm", "qwen3_xml"}
MAX_CALLS = 16  #: in one output that is forced to be calls
_MAX_ANALYSIS_CHARS = 4096  #: that a harmony model thinks before it is forced to call
#: Keywords of an object's schema that hold for each parameter by itself, or say nothing of values.
_PLAIN_KEYWORDS = frozenset(
    {
        "type",
        "properties",
        "required",
        "additionalProperties",
        "$defs",
        "definitions",
        "description",
        "title",
        "$schema",
    }
)
#: JSON as models are trained to write it: a space behind commas and colons.
_JSON_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
#: Text of a parameter between tags: no end tag.
_ANY_TEXT = r"([^<]|<+[^<\/])*"

_PARAMETER_END = ("\n</parameter>\n",)
_TAG_KEY = re.compile(r"[^<>\n]+")

#: The id of a text that is a special token; None: it is none.
SpecialId = Callable[[str], int | None]


#: The text with which calls begin in the formats that have such a text.
TRIGGERS: Mapping[ToolFormat, str] = {
    "hermes": "<tool_call>",
    "qwen3_xml": "<tool_call>",
    "gemma": gemma.BEGIN,
    "glm": glm.BEGIN,
    "kimi": kimi.CALLS_BEGIN,
    "phi": phi.CALLS,
    "granite": "<|tool_call|>",
    "mistral": mistral.CALLS,
    "mistral_list": mistral.CALLS,
    "deepseek_v3": deepseek.CALLS_BEGIN,
    "deepseek_v31": deepseek.CALLS_BEGIN,
}


_WITHOUT_JSON: frozenset[ToolFormat] = frozenset({"gemma", "glm", "pythonic", "qwen3_xml"})


class _Form(NamedTuple):
    """How calls stand in the output; each part is a piece of a rule."""

    opening: str
    call: Callable[[int, ToolFunction], str]
    separator: str
    closing: str
    max_calls: int = MAX_CALLS


def call_grammar(
    tool_format: ToolFormat, functions: Sequence[ToolFunction], special_id: SpecialId, *, max_calls: int = MAX_CALLS
) -> str:
    """The grammar of one call or more of these functions, at most max_calls. Raises InvalidRequest for parameters that
    the format cannot be forced to have."""
    rules = _Rules(special_id)
    form = _form(tool_format, rules)
    calls = [f"call_{i}: {form.call(i, function)}" for i, function in enumerate(functions)]
    any_call = "any_call: " + " | ".join(f"call_{i}" for i in range(len(functions)))
    num_more = min(max_calls, form.max_calls) - 1
    more = f" ({form.separator} any_call){{0,{num_more}}}" if num_more else ""
    start = f"start: {form.opening} any_call{more} {form.closing}"
    return "\n".join([start, any_call, *calls, *rules.lines]) + "\n"


def free_grammar(tool_format: ToolFormat, functions: Sequence[ToolFunction], special_id: SpecialId) -> str | None:
    """The grammar of text with any calls of these functions, in which arguments of strict functions follow their
    schemas, and those of others are objects. None: the format has no text that tells where a call begins, or cannot
    have arguments without a schema. Raises InvalidRequest as call_grammar does."""
    trigger = TRIGGERS.get(tool_format)
    if trigger is None or (tool_format in _WITHOUT_JSON and not all(function.is_strict for function in functions)):
        return None
    rules = _Rules(special_id, trigger)
    loose = json.dumps({"type": "object"})
    form = _form(tool_format, rules)
    calls = [
        f"call_{i}: {form.call(i, function if function.is_strict else replace(function, parameters=loose))}"
        for i, function in enumerate(functions)
    ]
    any_call = "any_call: " + " | ".join(f"call_{i}" for i in range(len(functions)))
    # Where each call has the trigger, they may have text between them.
    block = f"{form.opening} any_call ({form.separator} any_call)* {form.closing}" if form.opening else "any_call"
    begun = f"TEXT {rules.written(trigger)}"
    begin = f"{_BEGUN}: {begun}" if special_id(trigger) is not None else f"{_BEGUN}[lazy]: {begun}"
    start = f"start: ({block})* TEXT"
    return "\n".join([start, begin, "TEXT: /(.|\\n)*/", any_call, *calls, *rules.lines]) + "\n"


#: The rule of any text up to the beginning of a call.
_BEGUN = "begun"


class _Rules:
    """The rules that calls refer to, and how texts and values are written."""

    def __init__(self, special_id: SpecialId, trigger: str | None = None) -> None:
        """trigger: a text before which any other text may stand."""
        self._special_id = special_id
        self._trigger = trigger
        self.lines: list[str] = []

    def text(self, *parts: str) -> str:
        """These texts one after another; those that are special tokens as such."""
        return " ".join(_BEGUN if part == self._trigger else self.written(part) for part in parts)

    def written(self, part: str) -> str:
        """A text, or the special token that it is."""
        token_id = self._special_id(part)
        return f"<[{token_id}]>" if token_id is not None else json.dumps(part, ensure_ascii=False)

    def is_special(self, part: str) -> bool:
        """Whether a text is a special token."""
        return self._special_id(part) is not None

    def add(self, name: str, rule: str) -> str:
        """A rule; returns its name."""
        self.lines.append(f"{name}: {rule}")
        return name

    def json(self, name: str, schema: Mapping[str, Any]) -> str:
        """A JSON value of this schema. Raises InvalidRequest for one that cannot be followed."""
        served = servable(schema, lambda reason: InvalidRequest(f"tools: {reason}", param="tools"))
        return self.add(name, f"%json {json.dumps({**served, 'x-guidance': _JSON_STYLE})}")

    def arguments(self, index: int, function: ToolFunction) -> str:
        """The arguments of a function as one JSON object."""
        return self.json(f"arguments_{index}", {"type": "object", **parsed(function.parameters)})


def _form(tool_format: ToolFormat, rules: _Rules) -> _Form:
    text = rules.text

    def wrapped(before: Sequence[str], key: str, after: Sequence[str]) -> Callable[[int, ToolFunction], str]:
        """A call as a JSON object between two texts."""

        def call(index: int, function: ToolFunction) -> str:
            head = f'{{"name": {json.dumps(function.name)}, "{key}": '
            return f"{_before(rules, before, head)} {rules.arguments(index, function)} {_after(rules, after)}"

        return call

    def named(*parts: str, after: Sequence[str] = ()) -> Callable[[int, ToolFunction], str]:
        """The name among texts, where `parts` has an empty one, then the arguments."""

        def call(index: int, function: ToolFunction) -> str:
            before = text(*(part or function.name for part in parts))
            return f"{before} {rules.arguments(index, function)} {text(*after)}"

        return call

    match tool_format:
        case "hermes":
            return _Form("", wrapped(("<tool_call>", "\n"), "arguments", ("\n", "</tool_call>")), text("\n"), "")
        case "qwen3_xml":
            return _Form("", lambda index, function: _tags(rules, index, function), text("\n"), "")
        case "granite":
            return _Form(text("<|tool_call|>", "["), wrapped((), "arguments", ()), text(", "), text("]"))
        case "gemma":
            return _Form("", lambda index, function: _gemma(rules, index, function), "", "")
        case "glm":
            return _Form("", lambda index, function: _glm(rules, index, function), text("\n"), "")
        case "kimi":

            def kimi_call(index: int, function: ToolFunction) -> str:
                head = f"{text(kimi.CALL_BEGIN, f'{kimi.NAME_PREFIX}{function.name}:')} /[0-9]{{1,3}}/"
                return f"{head} {text(kimi.ARGUMENTS)} {rules.arguments(index, function)} {text(kimi.CALL_END)}"

            return _Form(text(kimi.CALLS_BEGIN), kimi_call, "", text(kimi.CALLS_END))
        case "phi":
            return _Form(text(phi.CALLS, "["), wrapped((), "arguments", ()), text(", "), text("]", phi.END))
        case "llama3_json":
            return _Form("", wrapped((), "parameters", ()), "", "", max_calls=1)
        case "pythonic":
            return _Form(text("["), lambda index, function: _python(rules, index, function), text(", "), text("]"))
        case "mistral":
            return _Form("", named(mistral.CALLS, "", mistral.ARGS), "", "")
        case "mistral_list":
            opening = f"{text(mistral.CALLS)} {text(' ')}? {text('[')}"
            return _Form(opening, wrapped((), "arguments", ()), text(", "), text("]"))
        case "deepseek_v3":
            before = (deepseek.CALL_BEGIN, "function", deepseek.SEPARATOR, "", "\n```json\n")
            call = named(*before, after=("\n```", deepseek.CALL_END))
            return _Form(text(deepseek.CALLS_BEGIN), call, text("\n"), text(deepseek.CALLS_END))
        case "deepseek_v31":
            call = named(deepseek.CALL_BEGIN, "", deepseek.SEPARATOR, after=(deepseek.CALL_END,))
            return _Form(text(deepseek.CALLS_BEGIN), call, "", text(deepseek.CALLS_END))
        case "harmony":
            return _harmony(rules)


def _before(rules: _Rules, parts: Sequence[str], head: str) -> str:
    return rules.text(*parts, head)


def _after(rules: _Rules, parts: Sequence[str]) -> str:
    return rules.text("}", *parts)


def _harmony(rules: _Rules) -> _Form:
    """The model may think before the call. Its `<|call|>` ends the output, so there is one call."""
    analysis = " ".join(
        (
            rules.text(harmony.CHANNEL, "analysis", harmony.MESSAGE),
            f"/(.|\\n){{1,{_MAX_ANALYSIS_CHARS}}}/",
            rules.text(harmony.END, harmony.START, "assistant"),
        )
    )

    def call(index: int, function: ToolFunction) -> str:
        header = (harmony.CHANNEL, f"commentary to=functions.{function.name} ", harmony.CONSTRAIN, "json")
        return f"{rules.text(*header, harmony.MESSAGE)} {rules.arguments(index, function)}"

    return _Form(f"({analysis})?", call, "", "", max_calls=1)


def _gemma(rules: _Rules, index: int, function: ToolFunction) -> str:
    refuse = partial(_refuse, function)
    arguments = gemma_arguments(rules, f"arguments_{index}", function.parameters, refuse)
    return f"{rules.text(gemma.BEGIN, f'call:{function.name}')} {arguments} {rules.text(gemma.END)}"


def _glm(rules: _Rules, index: int, function: ToolFunction) -> str:
    """As _tags."""
    parameters = []
    for place, (key, schema, is_required) in enumerate(_properties(function)):
        if not _TAG_KEY.fullmatch(key):
            raise _refuse(function, f"the parameter {key!r}")
        value = _tag_value(rules, f"value_{index}_{place}", function, schema, (glm.VALUE_END, "\n"))
        before = rules.text(glm.KEY, key, glm.KEY_END, "\n", glm.VALUE)
        rule = rules.add(f"parameter_{index}_{place}", f"{before} {value}")
        parameters.append(rule if is_required else f"{rule}?")
    return " ".join((rules.text(glm.BEGIN, f"{function.name}\n"), *parameters, rules.text(glm.END)))


def _tags(rules: _Rules, index: int, function: ToolFunction) -> str:
    """Parameters between tags, in the order of the schema."""
    parameters = []
    for place, (key, schema, is_required) in enumerate(_properties(function)):
        if not _TAG_KEY.fullmatch(key):
            raise _refuse(function, f"the parameter {key!r}")
        before = rules.text(f"<parameter={key}>\n")
        rule = rules.add(
            f"parameter_{index}_{place}",
            f"{before} {_tag_value(rules, f'value_{index}_{place}', function, schema, _PARAMETER_END)}",
        )
        parameters.append(rule if is_required else f"{rule}?")
    begin, end = (
        rules.text("<tool_call>", f"\n<function={function.name}>\n"),
        rules.text("</function>\n", "</tool_call>"),
    )
    return " ".join((begin, *parameters, end))


def _tag_value(
    rules: _Rules, name: str, function: ToolFunction, schema: Mapping[str, Any], ends: tuple[str, ...]
) -> str:
    """A value and the texts that end it. A text that is no special token belongs to the lexeme that it ends."""
    end = rules.text(*ends)
    plain = resolved(parsed(function.parameters), schema)
    if not is_text(plain):
        return f"{rules.json(name, _with_definitions(function, schema))} {end}"
    values = plain["enum"] if "enum" in plain else [plain["const"]] if "const" in plain else None
    if values is not None:
        if not (isinstance(values, list) and values and all(isinstance(value, str) for value in values)):
            raise _refuse(function, "an enum of strings that holds others")
        return f"({' | '.join(rules.text(value) for value in values)}) {end}"
    if "pattern" in plain:
        raise _refuse(function, "a pattern of a string")
    if "minLength" in plain or "maxLength" in plain:
        text = f"[^<]{{{plain.get('minLength', 0)},{plain.get('maxLength', '')}}}"
    else:
        text = _ANY_TEXT
    if rules.is_special(ends[0]):
        return f"/{text}/ {end}"
    first = re.escape(ends[0]).replace("/", r"\/").replace("\\\n", r"\n")
    return f"/{text}{first}/ {rules.text(*ends[1:])}"


def _python(rules: _Rules, index: int, function: ToolFunction) -> str:
    """Parameters as keywords: those that are required, then any of the others, in the order of the schema."""
    required: list[str] = []
    optional: list[str] = []
    for place, (key, schema, is_required) in enumerate(_properties(function)):
        if not re.fullmatch(r"\w+", key):
            raise _refuse(function, f"the parameter {key!r}")
        value = rules.json(f"value_{index}_{place}", _with_definitions(function, schema))
        (required if is_required else optional).append(f"{rules.text(key + '=')} {value}")
    comma = rules.text(", ")
    parameters = f" {comma} ".join(required)
    if required:
        parameters += "".join(f" ({comma} {parameter})?" for parameter in optional)
    elif optional:
        following = ""
        for place in range(len(optional) - 1, -1, -1):
            rest = f" ({comma} {following})? | {following}" if following else ""
            following = rules.add(f"keywords_{index}_{place}", f"{optional[place]}{rest}")
        parameters = f"{following}?"
    return f"{rules.text(function.name + '(')} {parameters} {rules.text(')')}"


def _properties(function: ToolFunction) -> list[tuple[str, Mapping[str, Any], bool]]:
    """Name, schema, and whether it is required, of each parameter. Raises InvalidRequest for more than a plain
    object."""
    schema = parsed(function.parameters)
    if unusual := sorted(schema.keys() - _PLAIN_KEYWORDS):
        raise _refuse(function, f"the keyword {unusual[0]!r} beside its properties")
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not (isinstance(required, list) and all(isinstance(key, str) for key in required)):
        raise InvalidRequest(f"the required parameters of {function.name} must be a list of names", param="tools")
    if unknown := sorted(set(required) - properties.keys()):
        raise _refuse(function, f"the required parameter {unknown[0]!r} without a schema")
    return [(key, value if isinstance(value, Mapping) else {}, key in required) for key, value in properties.items()]


def _with_definitions(function: ToolFunction, schema: Mapping[str, Any]) -> dict[str, Any]:
    root = parsed(function.parameters)
    return {**{key: root[key] for key in ("$defs", "definitions") if key in root}, **schema}


def _refuse(function: ToolFunction, reason: str) -> InvalidRequest:
    return InvalidRequest(
        f"this model's form of tool calls cannot be forced for {function.name}: {reason} is not supported",
        param="tools",
    )
