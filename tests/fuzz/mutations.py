"""Random changes to well-formed requests: each takes a random.Random, so that a seed gives the same change again."""

import copy
import json
from random import Random
from typing import Any
from urllib.parse import quote

TEXTS = (
    "",
    " ",
    "a",
    "\0",
    "\r\n",
    "\ud800",
    "\udfff\ud800",
    "\ufeff",
    "\u202e",
    "e\u0301" * 50,
    "\U0001f469\u200d\U0001f4bb",
    "\u0661\u0662",
    "null",
    "NaN",
    "-1",
    "1e999",
    "0x10",
    "../../etc/passwd",
    "%00",
    "%2e%2e%2f",
    "{{7*7}}",
    "${7*7}",
    "'; DROP TABLE votes; --",
    "<script>alert(1)</script>",
    ":events",
    "x:battle:y",
    "0-0",
    "1-1",
    "18446744073709551616-1",
    "$",
    "*",
    "a" * 129,
    "a" * 5000,
    "\\" * 100,
    '"' * 100,
)
NUMBERS = (
    *(0, -1, 1, 2, 0.5, -0.0, 1e-320, 1e308, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64),
    *(10**30, 3.0, True, False, None),
)
#: Written into a JSON text as they are.
TOKENS = (
    *("NaN", "Infinity", "-Infinity", "1e999", "-0", "01", "+1", ".5", "1.", "0x1", "tru", "undefined", "'a'", "//"),
    *(r'"\ud800"', r'"\udc00\ud800"', r'"\u0000"', r'"\x"', '"\t"', '"', "{", "[", "]", "}", ",", ":", ""),
    *(
        "9" * 25,
        "9" * 4400,
        "1" + "0" * 400 + ".5",
        "[" * 33 + "]" * 33,
        "[" * 3000,
        '{"a":' * 40,
        "\ufeff",
        "null null",
    ),
)


def changed_json(value: Any, random: Random) -> Any:
    """`value` with one to three random changes."""
    value = copy.deepcopy(value)
    for _ in range(random.randint(1, 3)):
        value = _change_one(value, random)
    return value


def _change_one(value: Any, random: Random) -> Any:
    if isinstance(value, dict) and value and random.random() < 0.85:
        key = random.choice(list(value))
        match random.randrange(10):
            case 0:
                del value[key]
            case 1:
                value[random.choice(TEXTS)] = any_json(random)
            case 2:
                value[random.choice(TEXTS)] = value.pop(key)
            case _:
                value[key] = _change_one(value[key], random)
        return value
    if isinstance(value, list) and value and random.random() < 0.85:
        index = random.randrange(len(value))
        match random.randrange(8):
            case 0:
                del value[index]
            case 1:
                return value * random.choice((2, 20, 300))
            case _:
                value[index] = _change_one(value[index], random)
        return value
    return any_json(random)


def any_json(random: Random, depth: int = 0) -> Any:
    """A JSON value of any kind, or a text that JSON cannot write."""
    match random.randrange(8 if depth < 3 else 5):
        case 0 | 1:
            return random.choice(NUMBERS)
        case 2 | 3:
            return random.choice(TEXTS)
        case 4:
            return random.choice(TEXTS) * random.choice((1, 2, 50))
        case 5:
            return [any_json(random, depth + 1) for _ in range(random.choice((0, 1, 3)))]
        case 6:
            return {random.choice(TEXTS): any_json(random, depth + 1) for _ in range(random.choice((0, 1, 3)))}
        case _:
            return [[]] * random.choice((10, 2000))


def json_bytes(value: Any, random: Random) -> bytes:
    """`value` as a body: mostly JSON, sometimes damaged as text."""
    text = json.dumps(value, ensure_ascii=random.random() < 0.7)
    if random.random() < 0.3:
        place = random.randrange(len(text) + 1)
        match random.randrange(5):
            case 0:
                text = text[:place]
            case 1:
                text = text[:place] + random.choice(TOKENS) + text[place + random.randrange(3) :]
            case 2:
                text = text.replace(":", ": " + random.choice(TOKENS) + " ", 1)
            case 3:
                text = text[:place] + text[place:] * 2
            case _:
                text = '"' + '\\"' * random.choice((10, 1000, 16_000, 100_000))
    body = text.encode("utf-8", errors="surrogatepass")
    if random.random() < 0.05:
        body = random.choice((body.decode("utf-8", "replace").encode("utf-16"), body + b"\xff", b"\xef\xbb\xbf" + body))
    return body


def changed_path(path: str, random: Random) -> str:
    """A path with one segment changed, or with another spelling. Anything but blanks and line ends may be in it."""
    segments = path.split("/")
    index = random.randrange(1, len(segments)) if len(segments) > 1 else 0
    match random.randrange(8):
        case 0 | 1 | 2:
            segments[index] = quote(random.choice(TEXTS), safe="", errors="surrogatepass")
        case 3:
            segments[index] += random.choice((":events", "%00", "%2f", "%ff", "/", "//", "/..", ";a", "%0d%0a", "%25"))
        case 4:
            segments.insert(index, random.choice(("", ".", "..", "%2e%2e", "a")))
        case 5:
            segments[index] = segments[index].upper()
        case 6:
            segments[index] = random.choice(("a" * 255, "a" * 4096, "%61" * 3000, "\u00e9", "%e9"))
        case _:
            return "".join(random.choice((part, f"%{ord(part):02x}")) if part.isascii() else part for part in path)
    return "/".join(segments)


def changed_query(names: list[str], random: Random) -> str:
    """A query of known and unknown names with hostile values."""
    pairs = []
    for _ in range(random.randint(1, 3)):
        name = random.choice(names) if names and random.random() < 0.8 else random.choice(TEXTS)
        value = random.choice((*TEXTS, *map(str, NUMBERS)))
        pairs.append("=".join(quote(text, safe="", errors="surrogatepass") for text in (name, value)))
    return random.choice(("&", ";", "&&")).join(pairs) + random.choice(("", "", "", "&", "=", "%", "%zz", "#a", "?"))


def header_value(random: Random) -> str:
    """The value of a header: no NUL and no line end, which are matters of raw.py."""
    text = random.choice((*TEXTS, *map(str, NUMBERS), "\u00ff\u0080", "a,b;q=2", '"', 'W/"x"', "bytes=0-,0-,0-"))
    return "".join(part for part in text if part not in "\0\r\n" and ord(part) < 256)


HEADERS = (
    *("Accept", "Accept-Language", "Accept-Encoding", "Authorization", "Cookie", "Host", "Origin", "Referer", "Range"),
    *("Last-Event-ID", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded", "Content-Encoding"),
    *("If-None-Match", "If-Modified-Since", "X-Request-ID", "Traceparent", "X-HTTP-Method-Override", "Upgrade"),
    *("User-Agent", "Content-Type", "X-Gradio-User", "X-Gradio-Server", "Connection", "TE", "Sec-Fetch-Site"),
)
