"""Texts and conversations that published tokenizers and chat templates are tried on; the same in every run."""

# ruff: noqa: RUF001 - scripts of the world are what is tried
import random
from dataclasses import dataclass, field
from typing import Any

_PIECES = (
    *(
        "",
        " ",
        "  ",
        "\n",
        "\n\n\n",
        "\t\t",
        "\r\n",
        "\u00a0\u2003\u3000",
        "\ufeffx",
        "a\u0000b",
        "\x01\x7f",
        "\U0010ffff",
    ),
    *(
        "0" * 60,
        "1234567890123",
        "3.14159",
        "a" * 80,
        " " * 70,
        "-" * 40,
        "...!!!???",
        "I'm you're WE'LL it'S don\u2019t",
    ),
    *("def f(x):\n\treturn {k: v for k, v in x.items()}\n", "for (int i=0;i<n;++i){a[i]^=b[i]<<3;}", "        if x:\n"),
    *(
        '{"a": [1, 2, {"b": null}]}',
        "<html>\r\n <p class='a'>hi&nbsp;</p>\r\n</html>",
        "https://example.com/a?b=c&d=%20#x",
    ),
    *(
        "你好，世界。今天天气不错",
        "日本語のテキスト",
        "한국어 문장입니다.",
        "𠮷野家",
        "ｆｕｌｌｗｉｄｔｈ",
        "か\u3099",
        "\u1100\u1161\u11a8",
    ),
    *("👨\u200d👩\u200d👧 family", "🏳️\u200d🌈", "👍🏽", "🇩🇪🇯🇵", "1️⃣2️⃣", "🫠🪿"),
    *(
        "السلام عليكم",
        "עִבְרִית",
        "हिन्दी में",
        "ภาษาไทย",
        "தமிழ்",
        "ქართული",
        "Ωμέγα",
        "ёлка",
        "Tiếng Việt",
        "e\u0301 é",
        "ﬁ ſ ß İı",
    ),
    *("Z͑ͫ̓ͪA̴̵̜̰͔", "\u2581\u2581 x", "Ġbyte Ċlevel", "𝔘𝔫𝔦", "\u2028\u2029", "½ ⅷ", "Hello world", " Hello", "Hello, y'all!"),
)


def texts(number: int = 300) -> list[str]:
    """Texts of many scripts and shapes: each piece, then pieces joined."""
    draw = random.Random(7)
    found = list(_PIECES)
    while len(found) < number:
        joint = draw.choice(("", " ", "\n", "  ", "\t", ", "))
        found.append(joint.join(draw.choice(_PIECES) for _ in range(draw.randint(2, 8))))
    return found[:number]


@dataclass(frozen=True)
class Conversation:
    """What a template gets."""

    name: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    kwargs: dict[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True


_WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'Weather of a city: <b>now</b> & "später" 日本',
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name"},
                "unit": {"type": "string", "enum": ["c", "f"]},
                "days": {"type": "integer", "minimum": 1},
            },
            "required": ["city"],
        },
    },
}
_SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search.",
        "parameters": {"type": "object", "properties": {"q": {"type": "array", "items": {"type": "string"}}}},
    },
}


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _answer(text: str | None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def _call(name: str, arguments: dict[str, Any], call_id: str = "call00001") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _result(text: str, call_id: str = "call00001", name: str = "get_weather") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "name": name, "content": text}


_CALLS = [_call("get_weather", {"city": 'Zürich "x" <a>', "unit": "c", "days": 2})]
_RESULT = _result('{"t": 21.5, "s": "☀️ <ok>"}')
_SYSTEM = {"role": "system", "content": "You are terse. Ünïcode 日本"}

CONVERSATIONS = (
    Conversation("a question", [_user("Hello, how are you?")]),
    Conversation("with a system message", [_SYSTEM, _user("Hi")]),
    Conversation("several turns", [_SYSTEM, _user("a"), _answer("b"), _user("c\n\nd"), _answer("e"), _user("  f")]),
    Conversation("without a new answer", [_user("a"), _answer("b")], add_generation_prompt=False),
    Conversation("tools", [_user("Weather?")], [_WEATHER]),
    Conversation("tools and a system message", [_SYSTEM, _user("Weather?")], [_WEATHER, _SEARCH]),
    Conversation("a call", [_user("Weather?"), _answer(None, tool_calls=_CALLS), _RESULT], [_WEATHER]),
    Conversation(
        "a call and its answer",
        [_SYSTEM, _user("W?"), _answer(None, tool_calls=_CALLS), _RESULT, _answer("21 degrees"), _user("Thanks")],
        [_WEATHER],
    ),
    Conversation("a call with text", [_user("W?"), _answer("Let me see.", tool_calls=_CALLS), _RESULT], [_WEATHER]),
    Conversation(
        "two calls",
        [
            _user("W?"),
            _answer(None, tool_calls=[_call("get_weather", {"city": "A"}), _call("search", {"q": ["x"]}, "call00002")]),
            _RESULT,
            _result("nothing", "call00002", "search"),
        ],
        [_WEATHER, _SEARCH],
    ),
    Conversation("earlier thoughts", [_user("1+1"), _answer("2", reasoning_content="one and one"), _user("3+3")]),
    Conversation("thoughts in a text", [_user("1+1"), _answer("<think>\nhmm\n</think>\n\n2"), _user("and?")]),
    Conversation("without thinking", [_user("Hi")], kwargs={"enable_thinking": False}),
    Conversation("with thinking", [_user("Hi")], kwargs={"enable_thinking": True}),
)
