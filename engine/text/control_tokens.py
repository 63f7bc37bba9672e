"""Which tokens control a model, and how texts of a conversation are kept from becoming one.

A control token is one that ends a sequence, one that tokenizer.json flags as special, and any other added token that
the chat template means by itself: it names the token, may put it together from parts, writes it in small conversations,
or the token is a known mark of tool calls or thoughts. Other added tokens (Gemma has thousands) are plain text.
Blanks and words are never marks of a template. Knows no messages.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import get_args

import tokenizers

from engine.sampling_params import ThoughtTags, ToolFormat
from engine.text.chat_template import ROLES, ChatTemplate
from engine.text.control_pattern import ControlPattern
from engine.text.prompted_tools import RESULT_MARKS
from engine.text.thoughts import KNOWN_TAGS
from engine.text.tool_calls.detection import marks_of

_MOST_CHARACTERS = 16_384  #: whose look is kept
_MOST_PUT_TOGETHER = 128  #: characters of a mark that a template puts together
_SPACE = "\u2581"  #: stands for a space in SentencePiece vocabularies
#: Marks that mean the same in every model that has them as tokens.
_KNOWN_MARKS = frozenset(
    {
        *(mark for tool_format in get_args(ToolFormat) for mark in marks_of(tool_format)),
        *(tag for tags in KNOWN_TAGS for tag in (tags.begin, tags.end)),
        *RESULT_MARKS,
    }
)


class ControlTokens:
    """The control tokens of one model. Safe to use from several threads."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        template: ChatTemplate,
        tags: ThoughtTags,
        *,
        always: Collection[int],
        never: Collection[int | None],
    ) -> None:
        """tags: between which the model thinks. always, never: ids that are control tokens, or are none, whatever the
        template says."""
        marks = {
            token_id: token.content
            for token_id, token in backend.get_added_tokens_decoder().items()
            if token_id not in always and _is_mark(token.content)
        }
        named = _named(marks, template.literals)
        emitted = {
            token_id for text in template.probed() for token_id in backend.encode(text, add_special_tokens=False).ids
        }
        self.ids = (frozenset(always) | named | (emitted & marks.keys())) - set(never)
        texts = [text for token_id in self.ids if (text := backend.id_to_token(token_id))]
        rests, look = _rests(texts, template.literals), _look(backend.normalizer, frozenset("".join(texts)))
        #: For texts of anyone but the model.
        self.pattern = ControlPattern(texts, rests=rests, look=look, names=template.names)
        #: For earlier answers, in which templates look for the tags of thoughts.
        shown = [text for text in texts if text in (tags.begin, tags.end)]
        self.answer_pattern = ControlPattern(texts, rests=rests, look=look, names=template.names, kept=shown)

    def among(self, ids: Iterable[int]) -> list[int]:
        """The control tokens in these ids."""
        return [token_id for token_id in ids if token_id in self.ids]


def _look(
    normalizer: tokenizers.normalizers.Normalizer | None, alphabet: frozenset[str]
) -> Callable[[str], str] | None:
    """What the tokenizer makes of a character, if that is any of these characters. None: it changes no text."""
    if normalizer is None:
        return None

    @lru_cache(_MOST_CHARACTERS)
    def look(character: str) -> str:
        # Some normalizers put a space before a text.
        changed: str = normalizer.normalize_str(f".{character}").removeprefix(normalizer.normalize_str("."))
        return character if alphabet.isdisjoint(changed) else changed

    return look


def _is_mark(text: str) -> bool:
    """Whether a text can be a mark: it is neither blank nor a word."""
    return bool(plain := text.replace(_SPACE, " ").strip()) and not plain.isalnum()


def _named(marks: Mapping[int, str], literals: Collection[str]) -> set[int]:
    """The tokens that are known marks, that the template's literals contain, or that it may put together: a literal
    ends with the token's beginning, another one begins with its end, and between them is nothing, a literal or a
    role."""
    joined = "\0".join(literals)
    heads, middles = _heads(literals), {"", *literals, *ROLES}
    tails = {text[:length] for text in literals for length in range(1, min(len(text), _MOST_PUT_TOGETHER) + 1)}

    def is_built(text: str) -> bool:
        if len(text) > _MOST_PUT_TOGETHER:
            return False
        ends = [cut for cut in range(1, len(text)) if text[:cut] in heads]
        return any(text[cut:] in tails and text[end:cut] in middles for end in ends for cut in range(end, len(text)))

    return {token_id for token_id, text in marks.items() if text in _KNOWN_MARKS or text in joined or is_built(text)}


def _rests(texts: Iterable[str], literals: Collection[str]) -> frozenset[str]:
    """What would complete a control token behind a literal of the template that ends with its beginning."""
    heads = _heads(literals)
    cuts = range(1, _MOST_PUT_TOGETHER)
    return frozenset(text[cut:] for text in texts for cut in cuts[: len(text) - 1] if text[:cut] in heads)


def _heads(literals: Collection[str]) -> set[str]:
    """What literals end with."""
    return {text[-length:] for text in literals for length in range(1, min(len(text), _MOST_PUT_TOGETHER) + 1)}
