"""What a model thinks is told from what it answers, wherever the output is cut."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.request import StopStrings
from engine.sampling_params import ThoughtTags
from engine.text.sequence_text import SequenceText
from engine.text.thoughts import DEFAULT_TAGS, Said, ThoughtSplitter

OPEN_TAGS = ThoughtTags("<think>", "</think>", is_open=True)


def split(pieces: Iterable[str], tags: ThoughtTags = DEFAULT_TAGS) -> tuple[str, str]:
    splitter = ThoughtSplitter(tags)
    said = [*(splitter.push(piece) for piece in pieces), splitter.flush()]
    return "".join(piece.thoughts for piece in said), "".join(piece.text for piece in said)


CASES = [
    ("<think>hm, 17</think>It is 42.", "hm, 17", "It is 42."),
    ("\n<think>\n\na b\n c \n</think>\n\nIt is\n42.\n", "a b\n c", "It is\n42.\n"),
    ("<think>\n\n</think>\n\nhi", "", "hi"),
    ("<think></think>hi", "", "hi"),
    ("<think>a < b, </think  and </thin</think>yes", "a < b, </think  and </thin", "yes"),
    ("<think>never ends </th", "never ends </th", ""),
    ("<think>never ends \n", "never ends", ""),
    ("<think>only</think>", "only", ""),
    ("no tags", "", "no tags"),
    ("  \n two blanks", "", "  \n two blanks"),
    (" \n ", "", " \n "),
    ("<thin", "", "<thin"),
    ("<thing>x</thing>", "", "<thing>x</thing>"),
    ("say <think>x</think> y", "", "say <think>x</think> y"),
    ("<think>x</think>y <think>z</think>", "x", "y <think>z</think>"),
    ("", "", ""),
]
OPEN_CASES = [
    ("hm</think>\nyes", "hm", "yes"),
    ("\n hm \n</think>yes", "hm", "yes"),
    ("<think>\nhm</think>yes", "hm", "yes"),
    ("</think>yes", "", "yes"),
    ("\n\n</think>\n\nyes", "", "yes"),
    ("still thinking <", "still thinking <", ""),
    ("<t", "<t", ""),
    ("\n", "", ""),
]
#: A word stands behind the first tag, as Gemma 4 writes it.
WORD_TAGS = ThoughtTags("<|channel>", "<channel|>", word="thought")
WORD_CASES = [
    ("<|channel>thought\nhm\n<channel|>yes", "hm", "yes"),
    ("<|channel>thoughts<channel|>yes", "s", "yes"),
    ("<|channel>thorn<channel|>yes", "thorn", "yes"),
    ("<|channel>thought\n<channel|>yes", "", "yes"),
    ("<|chan", "", "<|chan"),
    ("thought", "", "thought"),
    ("<|channel>thou", "thou", ""),
]
EVERY_CASE = [
    *((DEFAULT_TAGS, *case) for case in CASES),
    *((OPEN_TAGS, *case) for case in OPEN_CASES),
    *((WORD_TAGS, *case) for case in WORD_CASES),
]


@pytest.mark.parametrize(("tags", "output", "thoughts", "text"), EVERY_CASE)
def test_thoughts_and_text_come_apart_at_every_cut(tags: ThoughtTags, output: str, thoughts: str, text: str) -> None:
    places = range(len(output) + 1)
    for first in places:
        for second in places[first:]:
            pieces = [output[:first], output[first:second], output[second:]]
            assert split(pieces, tags) == (thoughts, text), pieces
    assert split(output, tags) == (thoughts, text)


@given(
    output=st.lists(st.sampled_from(["<think>", "</think>", "<thi", "</", ">", "a", " ", "\n"])).map("".join),
    cuts=st.lists(st.integers(0, 60)),
    is_open=st.booleans(),
)
def test_no_cut_changes_what_is_said(output: str, cuts: Sequence[int], is_open: bool) -> None:
    tags = OPEN_TAGS if is_open else DEFAULT_TAGS
    pieces = [output[first:last] for first, last in pairwise([0, *sorted(cuts), len(output) + 60])]
    assert split(pieces, tags) == split([output], tags)


def test_thoughts_and_text_are_given_as_soon_as_they_are_certain() -> None:
    splitter = ThoughtSplitter(DEFAULT_TAGS)
    pushed = [splitter.push(piece) for piece in ("<th", "ink>a", " b", "</", "think>", "\n", "c", "</think>")]
    nothing = Said("", "")
    expected = [nothing, Said("a", ""), Said(" b", ""), nothing, nothing, nothing, Said("", "c"), Said("", "</think>")]
    assert pushed == expected


class OneCharacterAToken:
    def push(self, token_ids: Sequence[int]) -> str:
        return "".join(map(chr, token_ids))

    def flush(self) -> str:
        return ""


def said_by(output: str, *stops: str) -> tuple[SequenceText, str, str]:
    text = SequenceText(OneCharacterAToken(), StopStrings(stops), ThoughtSplitter(DEFAULT_TAGS))
    said = [text.push(ord(character), may_stop=True) for character in output]
    if text.stops is not None and text.stops.found is None:
        said.append(text.flush())
    return text, "".join(piece.thoughts for piece in said), "".join(piece.text for piece in said)


def test_stop_strings_end_the_answer_and_not_the_thoughts() -> None:
    text, thoughts, answer = said_by("<think>one. two.</think>three. four.", ". ", "two")
    assert (thoughts, answer) == ("one. two.", "three")
    assert text.stops is not None
    assert text.stops.found == ". "


def test_tokens_of_thoughts_are_counted_with_their_tags() -> None:
    text, _, _ = said_by("<think>ab</think>cd", "x")
    # The characters of the first tag are not known to be one before its last.
    assert text.num_thought_tokens == len(">ab</think>")
