"""Whether a text says of its own speaker that it is a model, or by a maker, among the names found in it.

The rules look at the words on both sides of a name: "I am a large language model by NAME" is a chain of known words
between a phrase of the first person and the name, "Excel was developed by NAME" has no such beginning. Knows no
battle and no arena.
"""

import re
from collections.abc import Sequence

from controller.battles.revealing.names import FoundName, Names
from controller.battles.revealing.phrases import phrases
from controller.battles.revealing.spelling import plain

_CHAIN_CHARS = 160  #: longest chain from the first person to a name
_NEAR_CHARS = 60  #: text before and after a name that the other rules see
_ASKED_CHARS = 300  #: an answer to "who are you?" names itself within its beginning
_ASKING_CHARS = 1000  #: the question is looked for at both ends of a long prompt
_MAX_NAMES = 300  #: in one text; those in the middle of more are passed over, so that no answer takes long
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*\s[^`\n]*`", re.DOTALL)
_QUOTED = re.compile(r'"[^"\n]+"')
_IS_QUOTATION = 0.8  #: a text with more inside quotation marks is read as it is
_FIELD = re.compile(r"\w\W{0,3}[:=]")
_PERSON = re.compile(r"[ -][A-Z][a-z]")


class Claims:
    """The rules, for the names of one arena. Pure; threads may share it."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._phrases = phrases()

    def in_answers(self, answers: Sequence[str], prompts: Sequence[str]) -> bool:
        """Whether any of `answers`, given to the last of `prompts`, claims a name. Takes about 1 ms for 2,000
        characters, and grows with their number: for long answers call it in a thread."""
        return any(self.in_answer(answer, prompts) for answer in answers)

    def in_answer(self, answer: str, prompts: Sequence[str]) -> bool:
        """Whether `answer`, to the last of `prompts`, claims a name."""
        prompt = plain(prompts[-1]) if prompts else ""
        is_guessed = self._is_guessed(prompt)
        is_asked = is_guessed or any(
            self._phrases.asks.search(part) for part in (prompt[:_ASKING_CHARS], prompt[-_ASKING_CHARS:])
        )
        whole = plain(answer) if is_asked else self._without_speech(plain(_CODE.sub("\n", answer)))
        if is_guessed and self._phrases.yes.match(whole):
            return True
        found = self._names.find(whole)
        if len(found) > _MAX_NAMES:
            found = found[: _MAX_NAMES // 2] + found[-_MAX_NAMES // 2 :]
        starts = self._phrases.starts(whole, [name.start for name in found], _CHAIN_CHARS)
        text = _Text(whole, starts, is_asked)
        return any(self._is_claimed(name, text, prompts) for name in found)

    def _without_speech(self, text: str) -> str:
        """A text without what others say of themselves in it, unless it is one quotation."""
        spoken = {part for part in _QUOTED.findall(text) if self._phrases.speaks.search(part)}
        rest = _QUOTED.sub(lambda part: '""' if part.group() in spoken else part.group(), text)
        return text if len(text) - len(rest) >= _IS_QUOTATION * len(text) else rest

    def _is_claimed(self, name: FoundName, text: "_Text", prompts: Sequence[str]) -> bool:
        rules = self._phrases
        whole = text.whole
        before = whole[max(0, name.start - _NEAR_CHARS) : name.start]
        after = whole[name.end : name.end + _NEAR_CHARS]
        if self._is_a_word_or_person(name, whole, before, after):
            return False
        if self._says_self(name, text):
            return True
        if rules.after_subject.match(after) and rules.subject.search(before):
            return True
        if rules.after_name.match(after) or (rules.after_start.match(after) and rules.clause.search(before)):
            return True
        if rules.apposed_i.search(before) and after.lstrip().startswith(","):
            return True
        if rules.then_i.match(after) and rules.as_before.search(before):
            return True
        if rules.label.search(before) and (text.is_asked or self._is_card(whole)):
            return True
        if text.is_asked and name.start <= _ASKED_CHARS and not rules.like.search(before):
            return rules.no.search(whole, 0, name.start) is None
        is_last = not whole[name.end :].strip(" .!\n-")
        return is_last and rules.signature.search(before) is not None and not self._is_wanted(name, whole, prompts)

    def _says_self(self, name: FoundName, text: "_Text") -> bool:
        """Whether a chain of known words leads from the first person to the name, without a denial before it."""
        for start in text.starts:
            if name.start - _CHAIN_CHARS <= start < name.start:
                is_chain = self._phrases.chain.fullmatch(text.whole, start, name.start) is not None
                if is_chain and not self._phrases.denial.search(text.whole[max(0, start - _NEAR_CHARS) : start]):
                    return True
        return False

    def _is_a_word_or_person(self, name: FoundName, text: str, before: str, after: str) -> bool:
        """Whether a name is a common noun ("I am a raven", "an apple") or the first name of a person."""
        word = text[name.start : name.end]
        if not (name.is_weak or name.is_maker) or self._phrases.suffix.match(after) or re.search(r"\d", word):
            return False
        if name.is_maker:
            return re.search(r"\ban? \Z", before) is not None
        is_first_name = word[:1].isupper() and _PERSON.match(after) is not None
        return is_first_name or self._phrases.article.search(before) is not None

    def _is_card(self, text: str) -> bool:
        """Whether all lines with a label say what a model card says, unlike a character's sheet or a product's."""
        return all(self._phrases.label_line.match(line) for line in text.splitlines() if _FIELD.search(line))

    def _is_guessed(self, prompt: str) -> bool:
        """Whether the prompt asks for a name: "Are you NAME?"."""
        for name in self._names.find(prompt)[:_MAX_NAMES]:
            before = prompt[max(0, name.start - _NEAR_CHARS) : name.start]
            asked = self._phrases.are_you.search(before)
            if asked is None or (name.is_weak and self._phrases.article.search(before)):
                continue
            if not (name.is_maker and asked.group().lower().startswith("is this")):
                return True
        return False

    def _is_wanted(self, name: FoundName, text: str, prompts: Sequence[str]) -> bool:
        """Whether the visitor named it: a letter may be signed by anybody."""
        word = _letters(text[name.start : name.end])
        return any(word in _letters(plain(prompt)) for prompt in prompts)


class _Text:
    """An answer, where a phrase of the first person begins in it, and whether the prompt has asked who speaks."""

    def __init__(self, whole: str, starts: Sequence[int], is_asked: bool) -> None:
        self.whole = whole
        self.starts = starts
        self.is_asked = is_asked


def _letters(text: str) -> str:
    return re.sub(r"[\W_]", "", text).lower()
