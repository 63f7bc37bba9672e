"""Outputs with tool calls come apart into text, thoughts and calls, wherever they are cut."""

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.sampling_params import ToolCallSyntax, ToolFormat, ToolFunction
from engine.text.tool_calls.detection import marks_of
from engine.text.tool_calls.parser import ToolCallParser
from tests.engine.text.tool_formats import FORMATS

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
FUNCTIONS = (ToolFunction("get_weather", json.dumps(WEATHER)), ToolFunction("now", "{}"))
_SEP = "<\uff5ctool\u2581sep\uff5c>"
_CALL, _CALL_END = "<\uff5ctool\u2581call\u2581begin\uff5c>", "<\uff5ctool\u2581call\u2581end\uff5c>"
_CALLS, _CALLS_END = "<\uff5ctool\u2581calls\u2581begin\uff5c>", "<\uff5ctool\u2581calls\u2581end\uff5c>"


class Parsed(NamedTuple):
    """What an output says; calls as (name, arguments)."""

    text: str
    calls: list[tuple[str, str]]
    thoughts: str = ""


def parse(syntax: ToolCallSyntax, pieces: Iterable[str]) -> Parsed:
    parser = ToolCallParser(syntax)
    said = [*(part for piece in pieces for part in parser.push(piece)), *parser.flush()]
    calls: dict[int, list[str]] = {}
    for delta in (delta for part in said for delta in part.tool_calls):
        assert (delta.id is None) == (delta.name is None) == (delta.index in calls)
        call = calls.setdefault(delta.index, [delta.name or "", ""])
        call[1] += delta.arguments
    assert list(calls) == list(range(parser.num_calls))
    text, thoughts = "".join(part.text for part in said), "".join(part.thoughts for part in said)
    return Parsed(text, [(name, arguments) for name, arguments in calls.values()], thoughts)


def syntax_of(tool_format: ToolFormat, *, hides: bool = True, **changes: object) -> ToolCallSyntax:
    marks = marks_of(tool_format) if hides else ()
    return ToolCallSyntax(tool_format, FUNCTIONS, "request", marks=marks, **changes)  # type: ignore[arg-type]


CASES: list[tuple[ToolFormat, str, Parsed]] = [
    ("hermes", "no call", Parsed("no call", [])),
    ("hermes", " \n two blanks ", Parsed(" \n two blanks ", [])),
    (
        "hermes",
        'A\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n<tool_call>{"arguments": {"city": "<b>"}, '
        '"name": "get_weather"}</tool_call> B ',
        Parsed("A\nB", [("now", "{}"), ("get_weather", '{"city": "<b>"}')]),
    ),
    (  # a string of JSON, and a line break in a string
        "hermes",
        '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call><tool_call>{"name": "g", "arguments": '
        '{"a": "b\nc"}}</tool_call>',
        Parsed("", [("f", '{"a": 1}'), ("g", '{"a": "b\\nc"}')]),
    ),
    ("hermes", '<tool_call>{"name": "now"}', Parsed("", [("now", "{}")])),
    ("hermes", "<tool_call>no JSON</tool_call> b", Parsed("no JSON b", [])),
    ("hermes", '<tool_call>{"name": "now", "argu', Parsed('{"name": "now", "argu', [])),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": [1, 2', Parsed("", [("f", '{"a": [1, 2')])),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": b}}</tool_call>c', Parsed("c", [("f", '{"a": b}}')])),
    ("qwen3_xml", "<tool_call>\n<function=now>\n</function>\n</tool_call>", Parsed("", [("now", "{}")])),
    (
        "qwen3_xml",
        '<tool_call><function=get_weather><parameter=city>"a"\n\n</b>\n</parameter><parameter=days>[1, 2]</parameter>'
        "<parameter=x>3</parameter></function></tool_call>",
        Parsed("", [("get_weather", '{"city": "\\"a\\"\\n\\n</b>", "days": [1, 2], "x": "3"}')]),
    ),
    ("qwen3_xml", "<function=now></function>", Parsed("", [("now", "{}")])),
    ("qwen3_xml", "a <function=now b", Parsed("a <function=now b", [])),
    (
        "llama3_json",
        '{"name": "now", "parameters": {}}; {"type": "function", "name": "get_weather", "parameters": {"days": 1}}',
        Parsed("", [("now", "{}"), ("get_weather", '{"days": 1}')]),
    ),
    ("llama3_json", ' {"name": "Bob", "parameters": {}} ', Parsed(' {"name": "Bob", "parameters": {}} ', [])),
    ("llama3_json", '{"name": "now"}', Parsed('{"name": "now"}', [])),
    ("llama3_json", "<|python_tag|>print(1)", Parsed("print(1)", [])),
    (
        "pythonic",
        "[get_weather(city=\"a\\n'\\x41\", days=-1.5), now(), get_weather(x={'k': [True, None, (1, 2)]})]",
        Parsed(
            "",
            [
                ("get_weather", '{"city": "a\\n\'A", "days": -1.5}'),
                ("now", "{}"),
                ("get_weather", '{"x": {"k": [true, null, [1, 2]]}}'),
            ],
        ),
    ),
    ("pythonic", "[see](http://a.b)", Parsed("[see](http://a.b)", [])),
    ("pythonic", "a <|python_start|>[now()]<|python_end|>", Parsed("a", [("now", "{}")])),
    ("pythonic", "[get_weather(city=a)]", Parsed("", [("get_weather", '{"city": a)]')])),
    (
        "gemma",
        'a<|tool_call>call:get_weather{city:<|"|>a "b"\n<|"|>,x:{k: [1, true,<|"|><|"|>], "q":-2e3},days:two}'
        "<tool_call|> b",
        Parsed(
            "ab",
            [("get_weather", '{"city": "a \\"b\\"\\n", "x": {"k": [1, true, ""], "q": -2e3}, "days": "two"}')],
        ),
    ),
    (
        "gemma",
        "<start_function_call>call:now{}<end_function_call><start_function_call>call:f{a:<escape>b<escape>}",
        Parsed("", [("now", "{}"), ("f", '{"a": "b"}')]),
    ),
    ("gemma", "<|tool_call>calling<tool_call|>", Parsed("calling", [])),
    ("gemma", "<|tool_call>call:now{a b}<tool_call|>c", Parsed("c", [("now", '{"a"b}')])),
    ("gemma", '<|tool_call>call:f{a:<|"|>b', Parsed("", [("f", '{"a": "b')])),
    (
        "glm",
        "a\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>a\n<b></arg_value>\n<arg_key>days</arg_key>"
        "<arg_value>[1]</arg_value></tool_call>\n<tool_call>now</tool_call>",
        Parsed("a", [("get_weather", '{"city": "a\\n<b>", "days": [1]}'), ("now", "{}")]),
    ),
    ("glm", "<tool_call>now <b", Parsed("now <b", [])),
    (
        "kimi",
        "a<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
        '<|tool_call_begin|> a.b:12 <|tool_call_argument_begin|> {"x": 1} <|tool_call_end|><|tool_calls_section_end|>',
        Parsed("a", [("now", "{}"), ("a.b", '{"x": 1}')]),
    ),
    ("kimi", "<|tool_call_begin|>now<|tool_call_end|>", Parsed("now", [])),
    (
        "phi",
        'a<|tool_call|>[{"name": "now", "arguments": {}}, {"name": "f", "parameters": {"a": 1}}]<|/tool_call|>b',
        Parsed("ab", [("now", "{}"), ("f", '{"a": 1}')]),
    ),
    ("phi", 'functools[{"name": "now", "arguments": {}}]', Parsed("", [("now", "{}")])),
    ("phi", "functools[1]", Parsed("functools[1]", [])),
    (
        "mistral",
        'a[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]get_weather[CALL_ID]abc123456[ARGS]{"days": 1}',
        Parsed("a", [("now", "{}"), ("get_weather", '{"days": 1}')]),
    ),
    ("mistral", "[TOOL_CALLS]now(1)", Parsed("now(1)", [])),
    (
        "mistral_list",
        '[TOOL_CALLS] [{"name": "now", "arguments": {}}, {"name": "f", "arguments": {"a": "]"}, "id": "x"}]',
        Parsed("", [("now", "{}"), ("f", '{"a": "]"}')]),
    ),
    (
        "granite",
        '<tool_call>[{"name": "now", "arguments": null}, {"name": "f", "arguments": {}}]',
        Parsed("", [("now", "{}"), ("f", "{}")]),
    ),
    (
        "deepseek_v3",
        f"{_CALLS}{_CALL}function{_SEP}now\n```json\n{{}}\n```{_CALL_END}\n{_CALL}function{_SEP}f\n```json\n"
        f'{{"a": 1}}\n```{_CALL_END}{_CALLS_END}',
        Parsed("", [("now", "{}"), ("f", '{"a": 1}')]),
    ),
    ("deepseek_v31", f"a{_CALLS}{_CALL}now{_SEP}{{}}{_CALL_END}{_CALLS_END}b", Parsed("ab", [("now", "{}")])),
    (
        "harmony",
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>so<|end|><|start|>assistant to=functions.now<|channel|>"
        "commentary json<|message|>{}<|call|>",
        Parsed("I look.", [("now", "{}")], "hm\nso"),
    ),
    ("harmony", "<|channel|>final<|message|>a<|return|>", Parsed("a", [])),
    (
        "harmony",
        '<|channel|>commentary to=functions.f<|channel|>commentary json<|message|>{"a": 1}<|call|>',
        Parsed("", [("f", '{"a": 1}')]),
    ),
    ("harmony", "<|channel|>analysis<|channel|>final<|message|>a", Parsed("analysisfinala", [])),
    ("harmony", "no channel", Parsed("no channel", [])),
    ("harmony", "<|channel|>nonsense<|message|>a", Parsed("nonsensea", [])),
]


@pytest.mark.parametrize(("tool_format", "output", "expected"), CASES)
def test_text_thoughts_and_calls_come_apart_at_every_cut(
    tool_format: ToolFormat, output: str, expected: Parsed
) -> None:
    syntax = syntax_of(tool_format)
    assert parse(syntax, [output]) == expected
    assert parse(syntax, output) == expected
    for place in range(len(output)):
        assert parse(syntax, [output[:place], output[place:]]) == expected


@pytest.mark.parametrize("tool_format", FORMATS)
def test_recorded_answers_are_read(tool_format: ToolFormat) -> None:
    case = FORMATS[tool_format]
    expected = Parsed(case.text, [("get_weather", '{"city": "Ulm", "days": 2}')], case.thoughts)
    assert parse(syntax_of(tool_format), case.answer) == expected
    assert parse(syntax_of(tool_format), "".join(case.answer)) == expected


@pytest.mark.parametrize("tool_format", FORMATS)
def test_arguments_come_in_pieces(tool_format: ToolFormat) -> None:
    parser = ToolCallParser(syntax_of(tool_format))
    pushed = [parser.push(piece) for piece in FORMATS[tool_format].answer]
    pieces = [delta.arguments for said in pushed for part in said for delta in part.tool_calls]
    assert len([piece for piece in pieces if piece]) > 1


_PIECES = [
    *('{"name": "', "get_weather", '", "arguments": ', '"parameters": ', '{"city": ', '"x\\n"', "}", "]", "[", ", "),
    *("<function=", "<parameter=city>", "</parameter>", "</function>", ">", "(", ")", "=", "'", '"', "\\", "\n", " "),
    *(
        "```json\n",
        "```",
        "assistant",
        "analysis",
        "final",
        "commentary to=functions.now",
        "json",
        "now",
        "1",
        "-",
        "\u00e9",
    ),
]


@settings(max_examples=150, deadline=None)
@given(data=st.data(), tool_format=st.sampled_from(sorted(FORMATS)), cuts=st.lists(st.integers(0, 300)))
def test_no_output_is_lost_or_read_differently_by_its_cuts(
    data: st.DataObject, tool_format: ToolFormat, cuts: Sequence[int]
) -> None:
    recorded = ["".join(FORMATS[tool_format].answer)[: data.draw(st.integers(0, 200))]]
    marks = list(marks_of(tool_format))
    drawn = data.draw(st.lists(st.sampled_from(_PIECES + 3 * marks + recorded) | st.text(max_size=3), max_size=30))
    output = "".join(part + f"w{place}w" * (place % 3 == 0) for place, part in enumerate(drawn))
    pieces = [output[first:last] for first, last in pairwise([0, *sorted(cuts), len(output) + 300])]
    whole = parse(syntax_of(tool_format), [output])
    assert parse(syntax_of(tool_format), pieces) == whole
    shown = "\n".join((whole.text, whole.thoughts, *(part for call in whole.calls for part in call)))
    for place in range(0, len(drawn), 3):
        assert f"w{place}w" in shown, (output, whole)
    assert not any(mark in whole.text for mark in marks)


def test_special_tokens_are_hidden_only_where_they_are_special() -> None:
    output = "<tool_call>no JSON</tool_call>"
    assert parse(syntax_of("hermes", hides=False), [output]).text == output
    assert parse(syntax_of("hermes"), [output]).text == "no JSON"


@pytest.mark.parametrize("tool_format", FORMATS)
def test_single_call_ends_the_output(tool_format: ToolFormat) -> None:
    parser = ToolCallParser(syntax_of(tool_format, is_single=True))
    answer = "".join(FORMATS[tool_format].answer)
    for piece in answer:
        assert not parser.is_done or not parser.push(piece)
        parser.push(piece)
    assert parser.is_done
    assert parser.num_calls == 1
    assert parser.push(answer) == parser.flush() == []


def test_ids_of_calls_follow_from_request_sample_and_place() -> None:
    def ids(sample: int, tool_format: ToolFormat = "hermes") -> list[str]:
        parser = ToolCallParser(syntax_of(tool_format), sample)
        mark = "[TOOL_CALLS]" if tool_format == "mistral" else "<tool_call>"
        said = parser.push(f'{mark}{{"name": "now"}}{mark}{{"name": "now"}}')
        return [delta.id or "" for part in said for delta in part.tool_calls if delta.id]

    assert ids(0) == ids(0)
    assert len({*ids(0), *ids(1)}) == 4
    assert all(len(each) == 9 and each.isalnum() for each in ids(0, "mistral"))


def test_a_call_keeps_the_id_that_the_model_gives_it() -> None:
    parser = ToolCallParser(syntax_of("kimi"))
    said = parser.push("<|tool_call_begin|>functions.now:7<|tool_call_argument_begin|>{}<|tool_call_end|>")
    assert [delta.id for part in said for delta in part.tool_calls if delta.id] == ["functions.now:7"]
