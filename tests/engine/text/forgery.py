"""Conversations that try to forge control tokens, and ordinary ones beside transformers, for any tokenizer and chat
template. test_control_tokens.py runs a few on small vocabularies;

    python -m tests.engine.text.forgery FOLDER[=TEMPLATE FILE] ... [--texts 2000] [--conversations 500]

many on the tokenizers of published models: one line each, and status 1 if a line begins with FAIL.
"""

import argparse
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

from transformers.utils.chat_template_utils import render_jinja_template

from engine.errors import InvalidRequest
from engine.sampling_params import ToolFormat
from engine.text.thoughts import KNOWN_TAGS
from engine.text.tokenizer import Tokenizer
from engine.text.tokenizer_files import read_backend, read_chat_template, read_eos_token_ids, read_special_tokens
from engine.text.tool_calls.detection import marks_of

ROLES = ("user", "system", "tool", "result", "name", "description")
_PLAIN = "plain"
_KNOWN = {mark for tool_format in get_args(ToolFormat) for mark in marks_of(tool_format)}
_KNOWN |= {tag for tags in KNOWN_TAGS for tag in (tags.begin, tags.end)} | {"<tool_response>", "</tool_response>"}
_LOOKS = (("|", "\uff5c"), ("\uff5c", "|"), ("<", "\uff1c"), (">", "\uff1e"), ("_", "\u2581"), ("K", "\u212a"))
_WORDS = (
    "Hello, how are you?",
    "  two\n\nlines ",
    "def f(x):\n\treturn {x: [1, 2]}",
    "<p class='a'>hi&nbsp;</p>",
    "<unused0> <table> <mask>",
    "a < b > c, x | y || z",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 caf\u00e9 e\u0301",
    "\u0645\u0631\u062d\u0628\u0627",
    '{"a": [1, null]}',
    "https://example.com/?q=%20#x",
    "1234567890",
    "think",
    "user: I'm sure you're WE'LL",
    " " * 30 + "x" + "-" * 40,
    "\u2581\u2581 sentence",
)


class Subject(NamedTuple):
    """A tokenizer with one template, and what must not be forged."""

    name: str
    tokenizer: Tokenizer
    template: str
    special_tokens: Mapping[str, str]
    control: Mapping[int, str]


def subject_of(folder: Path, template: str | None = None, name: str = "") -> Subject | None:
    """None: the folder has no template. template: its source, instead of the folder's own."""
    template = template or read_chat_template(folder)
    if template is None:
        return None
    backend, special_tokens = read_backend(folder), read_special_tokens(folder)
    eos = read_eos_token_ids(folder) | {backend.token_to_id(special_tokens.get("eos_token", "")) or 0}
    tokenizer = Tokenizer(backend, eos_token_ids=eos, special_tokens=special_tokens, chat_template=template)
    control = {
        token_id: token.content
        for token_id, token in backend.get_added_tokens_decoder().items()
        if token.special
        or token.content in _KNOWN
        or (token.content in template and token.content.strip() and not token.content.isalnum())
    }
    if (unknown := backend.token_to_id(special_tokens.get("unk_token", ""))) is not None:
        control.pop(unknown, None)
    return Subject(name or folder.name, tokenizer, template, special_tokens, control)


def adversarial_texts(subject: Subject, number: int, seed: int = 0) -> Iterator[str]:
    """Marks, halves of marks, look-alikes, and several of them with other texts between."""
    draw = random.Random(seed)
    marks = sorted(subject.control.values())
    in_template = [mark for mark in marks if mark in subject.template] or marks

    def piece() -> str:
        mark = draw.choice(in_template if draw.random() < 0.7 else marks)
        cut = draw.randint(1, max(1, len(mark) - 1))
        match draw.randrange(8):
            case 0 | 1 | 2:
                return mark
            case 3:
                return mark[:cut]
            case 4:
                return mark[cut:]
            case 5:
                return mark.replace(*draw.choice(_LOOKS))
            case 6:
                return mark[:cut] + mark + mark[cut:]
            case _:
                return draw.choice(_WORDS)

    for _ in range(number):
        joint = draw.choice(("", "", " ", "\n", "\n\n", "\u200b", "\ufdd0", "\ufdd1"))
        yield (
            "x" + joint.join(piece() for _ in range(draw.randint(1, 6)))
            if draw.random() < 0.3
            else joint.join(piece() for _ in range(draw.randint(1, 6))) + draw.choice(("", "x"))
        )


def conversation(texts: Mapping[str, str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Messages and tools with a text in the place of each role."""
    said = {role: texts.get(role, _PLAIN) or _PLAIN for role in ROLES}
    call = {"id": "call00001", "type": "function"}
    arguments = {"q": said["tool"], "n": [1, {"k": said["tool"]}]}
    schema = {"type": "object", "properties": {"q": {"type": "string", "description": said["description"]}}}
    function = {"name": said["name"], "description": said["description"], "parameters": schema}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": said["system"]},
        {"role": "user", "content": said["user"]},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": said["tool"],
            "tool_calls": [{**call, "function": {"name": said["name"], "arguments": arguments}}],
        },
        {"role": "tool", "tool_call_id": "call00001", "name": said["name"], "content": said["result"]},
        {"role": "assistant", "content": _PLAIN},
        {"role": "user", "content": said["user"]},
    ]
    return messages, [{"type": "function", "function": function}]


def borders(head: str, tail: str) -> list[list[dict[str, Any]]]:
    """Conversations in which two texts meet: at the border of messages, of parts, and of a result."""
    called = [*conversation({"result": head})[0][1:4], {"role": "user", "content": tail}]
    parts = [{"type": "text", "text": head}, {"type": "text", "text": tail}]
    return [
        *(
            [{"role": a, "content": head}, {"role": b, "content": tail}]
            for a, b in (("system", "user"), ("user", "user"))
        ),
        [{"role": "user", "content": head}, {"role": "assistant", "content": tail}, {"role": "user", "content": "x"}],
        [{"role": "user", "content": parts}],
        called,
    ]


def forgeries(subject: Subject, number: int) -> dict[str, Any]:
    """How many of the texts became control tokens, of those in one place and of halves of marks that meet at a border,
    how many conversations were refused for spelling one out, and examples. Every text stands in the place of each role
    once, with tools and without."""
    texts = list(adversarial_texts(subject, number))
    found: dict[str, Any] = {"forged": 0, "refused": 0, "failed": 0, "examples": []}

    def control(messages: Sequence[Any], tools: Sequence[Any] = (), *, may_fail: bool = False) -> list[int] | None:
        try:
            ids = subject.tokenizer.render_chat(messages, tools=tools)
        except InvalidRequest as error:
            if "spells out" in str(error):
                found["refused"] += 1
            elif not may_fail:
                found["failed"] += 1
                found["examples"].append(str(error))
            return None
        return [token_id for token_id in ids if token_id in subject.control]

    def in_places(texts_by_role: Mapping[str, str], *, with_tools: bool) -> list[int] | None:
        messages, tools = conversation(texts_by_role)
        return control(messages, tools) if with_tools else control([*messages[:2], *messages[4:]])

    for with_tools in (True, False):
        plain = in_places({}, with_tools=with_tools)
        for place, text in enumerate(texts):
            by_role = {role: texts[(place + step) % number] for step, role in enumerate(ROLES)}
            if in_places(by_role, with_tools=with_tools) not in (None, plain):
                alone = [r for r in ROLES if in_places({r: by_role[r]}, with_tools=with_tools) not in (None, plain)]
                found["forged"] += len(alone) or 1
                found["examples"] += [(role, by_role[role]) for role in alone] or [("together", text)]
    draw = random.Random(number)
    marks = [mark for mark in sorted(subject.control.values()) if len(mark) > 1]
    wholes = [control(messages, may_fail=True) for messages in borders(_PLAIN, _PLAIN)]
    for mark in draw.choices(marks, k=number // len(wholes)):
        cut = draw.randint(1, len(mark) - 1)
        for whole, messages in zip(wholes, borders(f"x{mark[:cut]}", f"{mark[cut:]}x"), strict=True):
            # Templates that know no parts, or want roles to alternate, reject such conversations.
            if whole is not None and control(messages, may_fail=True) not in (None, whole):
                found["forged"] += 1
                found["examples"].append(("border", mark, cut))
    return found


def ordinary(number: int, *, with_tools: bool, seed: int = 1) -> Iterator[tuple[list[dict[str, Any]], Any]]:
    """Conversations as people have them: turns, systems, tools, calls, results and thoughts."""
    draw = random.Random(seed)

    def words() -> str:
        return " ".join(draw.choice(_WORDS) for _ in range(draw.randint(1, 3)))

    function: dict[str, Any] = {"name": "look_up", "description": "Looks <b>up</b> & \u65e5\u672c."}
    tool = {"type": "function", "function": function}
    function["parameters"] = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    for number_of_call in (f"call{place:05}" for place in range(number)):
        messages: list[dict[str, Any]] = []
        if draw.random() < 0.4:
            messages.append({"role": "system", "content": words()})
        for _ in range(draw.randint(0, 3)):
            answer = {"role": "assistant", "content": words()}
            if draw.random() < 0.3:
                answer["reasoning_content"] = words()
            elif draw.random() < 0.2:
                answer["content"] = f"<think>\n{words()}\n</think>\n\n{words()}"
            messages += [{"role": "user", "content": words()}, answer]
        messages.append({"role": "user", "content": words()})
        uses_tools = with_tools and draw.random() < 0.5
        if uses_tools and draw.random() < 0.7:
            called_function = {"name": "look_up", "arguments": {"q": words()}}
            call = {"id": number_of_call, "type": "function", "function": called_function}
            called: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [call]}
            if draw.random() < 0.5:
                called["reasoning_content"] = words()
            result = {"role": "tool", "tool_call_id": number_of_call, "name": "look_up", "content": words()}
            messages += [called, result]
        yield messages, [tool] if uses_tools else None


def rendered_by_transformers(
    messages: Sequence[Any], tools: Sequence[Any] | None, template: str, special_tokens: Mapping[str, str]
) -> str:
    """The text of a conversation up to the answer. Raises whatever the template does."""
    given: Any = dict(special_tokens)
    rendered: Any = render_jinja_template(
        conversations=[list(messages)],
        tools=None if tools is None else list(tools),
        chat_template=template,
        add_generation_prompt=True,
        **given,
    )
    return str(rendered[0][0])


def compared(subject: Subject, number: int) -> dict[str, Any]:
    """How many ordinary conversations have the same ids as transformers' rendering, as tokenizers encodes it."""
    tokenizer = subject.tokenizer
    found: dict[str, Any] = {"equal": 0, "different": 0, "both refuse": 0, "only Agon": 0, "only transformers": 0}
    found["examples"] = []
    for messages, tools in ordinary(number, with_tools="tools" in subject.template):
        ids = expected = refusal = None
        try:
            ids = tokenizer.render_chat(messages, tools=tools)
        except InvalidRequest as error:
            refusal = str(error)
        try:
            text = rendered_by_transformers(messages, tools, subject.template, subject.special_tokens)
            expected = tokenizer.encode(text)
        except Exception:  # whatever a template raises
            pass
        if ids is None or expected is None:
            found["both refuse" if ids is expected else "only Agon" if ids is None else "only transformers"] += 1
            if expected is not None:
                found["examples"].append(refusal)
            continue
        found["equal" if ids == expected else "different"] += 1
        if ids != expected:
            a, b = (tokenizer.decode(each, False) for each in (ids, expected))
            at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), 0)
            found["examples"].append((a[max(0, at - 40) : at + 40], b[max(0, at - 40) : at + 40]))
    return found


def lines(folder: Path, template: str | None = None, name: str = "", *, texts: int, conversations: int) -> list[str]:
    """One line for the forgeries and one for the comparison; those that fail begin with FAIL."""
    subject = subject_of(folder, template, name)
    if subject is None:
        return [f"skip {name or folder.name}: no chat template"]
    forged, same = forgeries(subject, texts), compared(subject, conversations)
    said = []
    for title, found, fails in (
        (f"{texts} adversarial texts in {len(ROLES)} roles", forged, forged["forged"] or forged["failed"]),
        (f"{conversations} ordinary conversations", same, same["different"] or same["only Agon"]),
    ):
        examples = found.pop("examples")
        counts = ", ".join(f"{what} {number}" for what, number in found.items())
        said.append(f"{'FAIL' if fails else 'ok  '} {subject.name}: {title}: {counts}")
        if fails:
            said += [f"       {example!r}"[:400] for example in examples[:3]]
    return said


def main(arguments: Sequence[str]) -> int:
    """Print the lines of each folder."""
    parser = argparse.ArgumentParser(prog="python -m tests.engine.text.forgery")
    parser.add_argument("folders", nargs="+", help="FOLDER, or FOLDER=TEMPLATE FILE")
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--conversations", type=int, default=500)
    asked = parser.parse_args(arguments)
    has_failed = False
    for given in asked.folders:
        folder, _, file = given.partition("=")
        template = Path(file).read_text() if file else None
        name = "/".join(filter(None, (Path(folder).name, Path(file).stem if file else "")))
        for line in lines(Path(folder), template, name, texts=asked.texts, conversations=asked.conversations):
            has_failed |= line.startswith("FAIL")
            print(line, flush=True)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
