"""Texts and conversations that published tokenizers and chat templates are tried on; the same in every run."""

import random
from dataclasses import dataclass, field
from typing import Any

_PIECES = (
    "",
    " ",
    "  ",
    "\n",
    "\n\n\n",
    "\t\t",
    "\r\n",
    "\xa0\u2003\u3000",
    "\ufeffx",
    "a\x00b",
    "\x01\x7f",
    "\U0010ffff",
    "0" * 60,
    "1234567890123",
    "3.14159",
    "a" * 80,
    " " * 70,
    "-" * 40,
    "...!!!???",
    "I'm you're WE'LL it'S don\u2019t",
    "def f(x):\n\treturn {k: v for k, v in x.items()}\n",
    "for (int i=0;i<n;++i){a[i]^=b[i]<<3;}",
    "        if x:\n",
    '{"a": [1, 2, {"b": null}]}',
    "<html>\r\n <p class='a'>hi&nbsp;</p>\r\n</html>",
    "https://example.com/a?b=c&d=%20#x",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u4eca\u5929\u5929\u6c14\u4e0d\u9519",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8",
    "\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4.",
    "\U00020bb7\u91ce\u5bb6",
    "\uff46\uff55\uff4c\uff4c\uff57\uff49\uff44\uff54\uff48",
    "\u304b\u3099",
    "\u1100\u1161\u11a8",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 family",
    "\U0001f3f3\ufe0f\u200d\U0001f308",
    "\U0001f44d\U0001f3fd",
    "\U0001f1e9\U0001f1ea\U0001f1ef\U0001f1f5",
    "1\ufe0f\u20e32\ufe0f\u20e3",
    "\U0001fae0\U0001fabf",
    "\u0627\u0644\u0633\u0644\u0627\u0645 \u0639\u0644\u064a\u0643\u0645",
    "\u05e2\u05b4\u05d1\u05b0\u05e8\u05b4\u05d9\u05ea",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u092e\u0947\u0902",
    "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22",
    "\u0ba4\u0bae\u0bbf\u0bb4\u0bcd",
    "\u10e5\u10d0\u10e0\u10d7\u10e3\u10da\u10d8",
    "\u03a9\u03bc\u03ad\u03b3\u03b1",
    "\u0451\u043b\u043a\u0430",
    "Ti\u1ebfng Vi\u1ec7t",
    "e\u0301 \xe9",
    "\ufb01 \u017f \xdf \u0130\u0131",
    "Z\u0351\u036b\u0313\u036aA\u0334\u0335\u031c\u0330\u0354",
    "\u2581\u2581 x",
    "\u0120byte \u010alevel",
    "\U0001d518\U0001d52b\U0001d526",
    "\u2028\u2029",
    "\xbd \u2177",
    "Hello world",
    " Hello",
    "Hello, y'all!",
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
        "description": 'Weather of a city: <b>now</b> & "sp\xe4ter" \u65e5\u672c',
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


_CALLS = [_call("get_weather", {"city": 'Z\xfcrich "x" <a>', "unit": "c", "days": 2})]
_RESULT = _result('{"t": 21.5, "s": "\u2600\ufe0f <ok>"}')
_SYSTEM = {"role": "system", "content": "You are terse. \xdcn\xefcode \u65e5\u672c"}

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
