"""No text of a conversation becomes a token that controls the model, whatever tokenizer.json calls special; and plain
added tokens stay what they are."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from engine.errors import InvalidRequest
from engine.text.control_pattern import ControlPattern
from engine.text.tokenizer import Tokenizer
from tests.engine.text.forgery import lines

DEMO_MODELS = Path(__file__).parents[3] / "demo_models"
USER, ANSWER, END = "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>", "<\uff5cend\uff5c>"
PLAIN = ["<unused0>", "<table>", "\n\n", "  ", "user", "assistant"]
_MESSAGES = "{% for m in messages %}"
_CALLS = "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
_TOOLS = "{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}"
#: Templates that name their marks as a whole, in parts, or build them.
TEMPLATES = {
    "whole": _TOOLS + _MESSAGES + "{% if m.role == 'assistant' %}" + ANSWER + "{% else %}" + USER + "{% endif %}"
    "{{ m.content }}" + _CALLS + END + "{% endfor %}" + ANSWER,
    "joined": _TOOLS
    + _MESSAGES
    + "{{ '<\uff5c' ~ m.role.title() ~ '\uff5c>' ~ (m.content or '') }}"
    + _CALLS
    + "{{ '<\uff5c' ~ 'end' + '\uff5c>' }}{% endfor %}<\uff5c{{ 'Assistant' }}\uff5c>",
    "halves in data": _TOOLS
    + _MESSAGES
    + "<\uff5c{{ m.role | title }}\uff5c>{{ m.content | trim }}"
    + _CALLS
    + "<\uff5cend\uff5c>{% endfor %}",
    "no tools": _MESSAGES + "{{ m.role.title() }}: {{ m.content }}<\uff5cend\uff5c>{% endfor %}",
    "by variables": "{% set o, c = '<\uff5c', '\uff5c>' %}" + _TOOLS + _MESSAGES + "{{ [o, m.role.title(), c] | join }}"
    "{{ m.content }}" + _CALLS + "{{ eos_token }}{% endfor %}{{ [o, 'Assistant', c] | join }}",
}


def backend_of(kind: str, marks: Sequence[str] = (USER, ANSWER, END)) -> Backend:
    """A small vocabulary, none of whose added tokens is special."""
    if kind == "sentence-piece":
        pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *map(chr, range(33, 127))]
        vocabulary = {piece: place for place, piece in enumerate(pieces)}
        backend = Backend(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True))
        backend.normalizer = normalizers.Replace(" ", "\u2581")
        backend.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    else:
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        backend = Backend(models.BPE(vocab={text: place for place, text in enumerate(alphabet)}, merges=[]))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        if kind == "normalized":
            backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokens = (*marks, "<think>", "</think>", "<tool_call>", "</tool_call>", *PLAIN)
    backend.add_tokens([AddedToken(text, special=False, normalized=kind == "normalized") for text in tokens])
    return backend


def written(folder: Path, kind: str) -> Path:
    backend_of(kind).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))
    return folder


def tokenizer_of(template: str, kind: str = "byte-level", **special: str) -> Tokenizer:
    return Tokenizer(backend_of(kind), special_tokens=special, chat_template=template)


def ids_of(tokenizer: Tokenizer, *texts: str) -> list[int]:
    return [found for text in texts for found in tokenizer.encode(text)]


def user(content: object) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


@pytest.mark.parametrize("kind", ["byte-level", "sentence-piece", "normalized"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_no_text_of_any_role_becomes_a_control_token(tmp_path: Path, name: str, kind: str) -> None:
    found = lines(written(tmp_path, kind), TEMPLATES[name], name, texts=25, conversations=15)
    assert len(found) == 2
    assert not [line for line in found if not line.startswith("ok")], found


@pytest.mark.parametrize("name", ["finch", "raven", "wren"])
def test_nor_on_the_demo_models(name: str) -> None:
    folder = DEMO_MODELS / name
    if not (folder / "tokenizer.json").is_file():
        pytest.skip(f"{folder} is not there")
    found = lines(folder, texts=20, conversations=10)
    assert not [line for line in found if not line.startswith("ok")], found


def test_plain_added_tokens_stay_tokens_in_a_message_and_marks_do_not() -> None:
    tokenizer = tokenizer_of(TEMPLATES["whole"])
    for text in PLAIN:
        assert len(tokenizer.encode(text)) == 1
        assert tokenizer.encode(text)[0] in tokenizer.render_chat(user(f"a{text}b"))
    for text in (USER, ANSWER, END, "<think>", "</think>", "<tool_call>"):
        mark = tokenizer.encode(text)
        ids = tokenizer.render_chat(user(f"a{text}b"))
        assert len(mark) == 1
        assert ids.count(mark[0]) == tokenizer.render_chat(user("ab")).count(mark[0])
        assert f"a{text}b" in tokenizer.decode(ids)


def test_a_mark_that_only_a_rendering_shows_is_one() -> None:
    tokenizer = tokenizer_of("{{ messages[0].content }}{{ '>\uff5cdne\uff5c<' | reverse }}")
    mark = tokenizer.encode(END)[0]
    assert tokenizer.render_chat(user(f"a{END}b")).count(mark) == 1


def test_look_alikes_that_the_normalizer_turns_into_a_mark_are_cut() -> None:
    tokenizer = tokenizer_of("{{ messages[0].content }}</think>", "normalized")
    mark = tokenizer.encode("</think>")[0]
    for text in ("\uff1c/think\uff1e", "</THINK>", "\ufe64/th\u2170nk>"):
        assert tokenizer.encode(text) == [mark]
        assert tokenizer.render_chat(user(f"a{text}b")).count(mark) == 1


def test_inline_thoughts_of_an_earlier_answer_stay_tags_and_other_marks_in_it_do_not() -> None:
    template = (
        "{% for m in messages %}{% set said = m.content %}"
        "{% if m.role == 'assistant' %}{% set said = said.split('</think>')[-1] %}{% endif %}{{ said }}{% endfor %}"
    )
    tokenizer = tokenizer_of(template + END)
    thoughtful = {"role": "assistant", "content": f"<think>hm{END}</think>so{END}"}
    assert tokenizer.decode(tokenizer.render_chat([*user("a</think>"), thoughtful])) == f"a</think>so{END}{END}"
    shown = tokenizer_of("{% for m in messages %}{{ m.content }}{% endfor %}" + END)
    ids = shown.render_chat([*user("a<think>"), thoughtful])
    assert [ids.count(ids_of(shown, mark)[0]) for mark in ("<think>", "</think>", END)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("template", "messages"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", [*user("</thi"), *user("nk>")]),
        ("{% for p in messages[0].content %}{{ p.text }}{% endfor %}", user([{"text": "</"}, {"text": "think>"}])),
        ("{{ '</' ~ messages[0].content ~ '>' }}", user("think")),
        ("{{ '</' ~ messages[0].content | trim ~ '>' }}", user("  think ")),
        ("</{{ messages[0].content }}", user("think> and more")),
        ("{{ messages[0].content }}k>", user("and more </thin")),
        ("{% for k in messages[0].content %}</{{ k }}>{% endfor %}", user({"think": 1})),
        ("{{ '</' ~ messages[0].content }}{{ messages[1].content }}", [*user("thi"), *user("nk>")]),
    ],
)
def test_marks_that_a_template_joins_from_texts_are_refused(template: str, messages: list[dict[str, Any]]) -> None:
    tokenizer = tokenizer_of(template + "{{ '</think>' if messages | length > 5 }}")
    with pytest.raises(InvalidRequest, match="control tokens"):
        tokenizer.render_chat(messages)


def test_words_that_could_complete_a_mark_are_refused_only_where_they_do() -> None:
    tokenizer = tokenizer_of("<{{ messages[0].role }}>{{ messages[0].content }}</think>")
    assert tokenizer.decode(tokenizer.render_chat(user("think"))) == "<user>think</think>"


MARKS = ("<|a|>", "<|a|><|b|>", "[X]", "<think>", "|b|")


@given(text=st.text(alphabet="<|a>b[X]think\uff5c\uff1c ", max_size=30))
def test_a_text_is_cut_inside_of_each_mark_and_nowhere_else(text: str) -> None:
    pattern = ControlPattern(MARKS)
    parts = pattern.cut(text).split("\ufdd0")
    assert "".join(parts) == text
    assert not any(mark in part for mark in MARKS for part in parts)
    assert len(parts) == 1 or any(mark in text for mark in MARKS)
    assert not any(mark in pattern.disarmed(text) for mark in MARKS)
