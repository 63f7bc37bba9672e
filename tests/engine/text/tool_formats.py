"""A short chat template for each form of tool calls, with the markers and the structure of the models that have it, and
answers in that form, cut into tokens."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine.sampling_params import ToolFormat

END, ASSISTANT, ANSWER = "<|stop|>", "<|says|>", "<|reads|>"
_OPENING = "{% if add_generation_prompt %}<|says|>{% if messages[-1].role == 'tool' %}<|reads|>{% endif %}{% endif %}"
_FRAME = (
    "{%% if tools %%}TOOLS{%% for tool in tools %%}{{ tool | tojson }}{%% endfor %%}%(note)s<|stop|>{%% endif %%}"
    "{%% for m in messages %%}{%% if m.role == 'tool' %%}RESULT {{ m.content }}<|stop|>"
    "{%% elif m.tool_calls %%}<|says|>{{ m.content or '' }}%(calls)s<|stop|>"
    "{%% else %%}{{ '<|says|>' if m.role == 'assistant' else m.role + ': ' }}{{ m.content }}<|stop|>{%% endif %%}"
    "{%% endfor %%}%(opening)s"
)
_EACH = "{% for call in m.tool_calls %}{% set f = call.function %}"
_OBJECT = '{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}'


def _template(calls: str, *, note: str = "", opening: str = _OPENING) -> str:
    return _FRAME % {"calls": calls, "note": note, "opening": opening}


_DEEPSEEK = (
    "<\uff5ctool\u2581calls\u2581begin\uff5c>",
    "<\uff5ctool\u2581call\u2581begin\uff5c>",
    "<\uff5ctool\u2581sep\uff5c>",
    "<\uff5ctool\u2581call\u2581end\uff5c>",
    "<\uff5ctool\u2581calls\u2581end\uff5c>",
)
_CALLS, _CALL, _SEP, _CALL_END, _CALLS_END = _DEEPSEEK


@dataclass(frozen=True)
class FormatCase:
    """One form. `answer` are the tokens of a call of get_weather with city Ulm and days 2; `special` those texts that
    are special tokens."""

    template: str
    special: tuple[str, ...]
    answer: tuple[str, ...]
    text: str = "Let me look."
    thoughts: str = ""
    final: str = "It rains."  #: the token of the answer to a tool's result
    stops: tuple[str, ...] = ()  #: further tokens that end an answer


FORMATS: Mapping[ToolFormat, FormatCase] = {
    "hermes": FormatCase(
        _template(_EACH + "<tool_call>\n" + _OBJECT + "\n</tool_call>{% endfor %}"),
        ("<tool_call>", "</tool_call>"),
        (
            "Let me look.",
            "\n",
            "<tool_call>",
            '\n{"name": "get_weather',
            '", "arguments": {"ci',
            'ty": "Ulm", "days"',
            ": 2}}",
            "</tool_call>",
        ),
    ),
    "qwen3_xml": FormatCase(
        _template(
            _EACH + "<tool_call>\n<function={{ f.name }}>\n{% for key, value in f.arguments.items() %}"
            "<parameter={{ key }}>\n{{ value if value is string else value | tojson }}\n</parameter>\n{% endfor %}"
            "</function>\n</tool_call>{% endfor %}"
        ),
        ("<tool_call>", "</tool_call>"),
        (
            "Let me look.",
            "<tool_call>",
            "\n<function=get_",
            "weather>\n<parameter=city>\nU",
            "lm\n</para",
            "meter>\n<parameter=days>\n2",
            "\n</parameter>\n</function>\n",
            "</tool_call>",
        ),
    ),
    "llama3_json": FormatCase(
        _template(_EACH + '{"name": "{{ f.name }}", "parameters": {{ f.arguments | tojson }}}{% endfor %}')
        + "{# <|python_tag|> #}",
        ("<|python_tag|>",),
        ("<|python_tag|>", '{"name": "get_weather"', ', "parameters": {"city":', ' "Ulm", "days', '": 2}}'),
        text="",
    ),
    "pythonic": FormatCase(
        _template(
            "[" + _EACH + "{{ f.name }}({% for key, value in f.arguments.items() %}{{ key }}={{ value | tojson }}"
            "{{ ', ' if not loop.last }}{% endfor %}){{ ', ' if not loop.last }}{% endfor %}]",
            note="[name(parameter=value)]",
        ),
        (),
        ("[get_", "weather(ci", "ty='U", "lm', days", "=2)]"),
        text="",
    ),
    "mistral": FormatCase(
        _template(_EACH + "[TOOL_CALLS]{{ f.name }}[ARGS]{{ f.arguments | tojson }}{% endfor %}"),
        ("[TOOL_CALLS]", "[ARGS]"),
        ("Let me look.", "[TOOL_CALLS]", "get_weather", "[ARGS]", '{"city": "U', 'lm", "days": ', "2}"),
    ),
    "mistral_list": FormatCase(
        _template(
            "[TOOL_CALLS] [" + _EACH + _OBJECT[:-1] + ', "id": "{{ call.id }}"}{{ ", " if not loop.last }}'
            "{% if call.id | length != 9 %}{{ raise_exception('an id has nine letters') }}{% endif %}{% endfor %}]"
        ),
        ("[TOOL_CALLS]",),
        (
            "Let me look.",
            "[TOOL_CALLS]",
            ' [{"name": "get_weather", "argu',
            'ments": {"city": "Ulm"',
            ', "days": 2}, ',
            '"id": "123456789"}]',
        ),
    ),
    "granite": FormatCase(
        _template("<|tool_call|>[" + _EACH + _OBJECT + "{{ ', ' if not loop.last }}{% endfor %}]"),
        ("<|tool_call|>",),
        ("Let me look.", "<|tool_call|>", '[{"name": "get_weather", ', '"arguments": {"city": "Ulm",', ' "days": 2}}]'),
    ),
    "deepseek_v3": FormatCase(
        # As in its own template, arguments are a text, and only an answer without content calls.
        _template(
            "{% if m.content is none %}" + _CALLS + _EACH + _CALL + "{{ 'function' + '" + _SEP + "' + f.name + "
            "'\n```json\n' + f.arguments + '\n```' }}" + _CALL_END + "{% endfor %}" + _CALLS_END + "{% endif %}"
        ),
        _DEEPSEEK,
        (
            "Let me look.",
            _CALLS,
            _CALL,
            "function",
            _SEP,
            "get_weather\n```json\n",
            '{"city": "Ulm',
            '", "days": 2}',
            "\n```",
            _CALL_END,
            _CALLS_END,
        ),
    ),
    "deepseek_v31": FormatCase(
        _template(
            _CALLS
            + _EACH
            + _CALL
            + "{{ f.name }}"
            + _SEP
            + "{{ f.arguments | tojson }}"
            + _CALL_END
            + "{% endfor %}"
            + _CALLS_END
        ),
        _DEEPSEEK,
        ("Let me look.", _CALLS, _CALL, "get_weather", _SEP, '{"city": "Ulm', '", "days": 2}', _CALL_END, _CALLS_END),
    ),
    "gemma": FormatCase(
        _template(
            _EACH + "<|tool_call>call:{{ f.name }}{{ '{' }}{% for key, value in f.arguments.items() %}{{ key }}:"
            "{{ '<|\"|>' + value + '<|\"|>' if value is string else value | tojson }}{{ ',' if not loop.last }}"
            "{% endfor %}{{ '}' }}<tool_call|>{% endfor %}"
        ),
        ("<|tool_call>", "<tool_call|>"),
        (
            "Let me look.",
            "<|tool_call>",
            "call:get_weather{ci",
            'ty:<|"|>U',
            'lm<|"|>,da',
            "ys:2}",
            "<tool_call|>",
        ),
    ),
    "glm": FormatCase(
        _template(
            _EACH + "<tool_call>{{ f.name }}\n{% for key, value in f.arguments.items() %}<arg_key>{{ key }}</arg_key>\n"
            "<arg_value>{{ value if value is string else value | tojson }}</arg_value>\n{% endfor %}</tool_call>"
            "{% endfor %}"
        ),
        ("<tool_call>", "</tool_call>"),
        (
            "Let me look.",
            "<tool_call>",
            "get_weather\n<arg_key>city</arg",
            "_key>\n<arg_value>Ulm</arg_",
            "value>\n<arg_key>days</arg_key>\n<arg_value>2",
            "</arg_value>\n",
            "</tool_call>",
        ),
    ),
    "kimi": FormatCase(
        _template(
            "<|tool_calls_section_begin|>" + _EACH + "<|tool_call_begin|>functions.{{ f.name }}:{{ loop.index0 }}"
            "<|tool_call_argument_begin|>"
            "{{ f.arguments | tojson }}<|tool_call_end|>{% endfor %}<|tool_calls_section_end|>"
        ),
        (
            "<|tool_calls_section_begin|>",
            "<|tool_calls_section_end|>",
            "<|tool_call_begin|>",
            "<|tool_call_argument_begin|>",
            "<|tool_call_end|>",
        ),
        (
            "Let me look.",
            "<|tool_calls_section_begin|>",
            "<|tool_call_begin|>",
            "functions.get_",
            "weather:0",
            "<|tool_call_argument_begin|>",
            '{"city": "Ulm',
            '", "days": 2}',
            "<|tool_call_end|>",
            "<|tool_calls_section_end|>",
        ),
    ),
    "phi": FormatCase(
        _template("<|tool_call|>[" + _EACH + _OBJECT + "{{ ', ' if not loop.last }}{% endfor %}]<|/tool_call|>"),
        ("<|tool_call|>", "<|/tool_call|>"),
        (
            "Let me look.",
            "<|tool_call|>",
            '[{"name": "get_weather", ',
            '"arguments": {"city": "Ulm",',
            ' "days": 2}}]',
            "<|/tool_call|>",
        ),
    ),
    "harmony": FormatCase(
        _template(
            _EACH + "<|start|>assistant<|channel|>commentary to=functions.{{ f.name }} <|constrain|>json<|message|>"
            "{{ f.arguments | tojson }}<|call|>{% endfor %}",
            opening="{% if add_generation_prompt %}<|start|>assistant"
            "{{ ' ' if messages[-1].role == 'tool' }}{% endif %}",
        ),
        ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"),
        (
            "<|channel|>analysis<|message|>Let me look.<|end|><|start|>assistant",
            "<|channel|>",
            "commentary to=functions.get_weather ",
            "<|constrain|>",
            "json",
            "<|message|>",
            '{"city": "Ulm',
            '", "days": 2}',
            "<|call|>",
        ),
        text="",
        thoughts="Let me look.",
        final="<|channel|>final<|message|>It rains.",
        stops=("<|call|>", "<|return|>"),
    ),
}

#: A template that knows no tools: the system message tells of them, and results are what the user says.
PROMPTED = replace(
    FORMATS["hermes"],
    template="{% for m in messages %}{{ '<|says|>' if m.role == 'assistant' else m.role + ': ' }}{{ m.content }}"
    "<|stop|>{% endfor %}{% if add_generation_prompt %}<|says|>"
    "{% if '</tool_response>' in messages[-1].content %}<|reads|>{% endif %}{% endif %}",
)
