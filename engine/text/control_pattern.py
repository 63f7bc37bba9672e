"""Finds texts of control tokens inside of other texts, and changes them there. Knows no ids and no templates."""

import re
from collections.abc import Callable, Collection

#: A Unicode noncharacter, never valid in interchanged text: marks where a text is cut before it is encoded.
CUT = "\ufdd0"
#: Another noncharacter: replaces characters that could begin a control token when the structure of a chat is checked.
HARMLESS = "\ufdd1"


class ControlPattern:
    """The control tokens' texts, as the tokenizer finds them."""

    def __init__(
        self,
        texts: Collection[str],
        *,
        rests: Collection[str] = (),
        look: Callable[[str], str] | None = None,
        names: Collection[str] = (),
        kept: Collection[str] = (),
    ) -> None:
        """rests: what may complete a control token at the beginning of a text. look: what the tokenizer makes of a
        character before it looks for tokens; None: it changes none. names: keys that the template looks for. kept:
        those of the texts that stay as they are."""
        found = sorted(texts, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, found)) or r"(?!)")
        self._kept = frozenset(kept)
        #: Splits a text into what may hold starts and, between these, what stays.
        self._between = re.compile(f"({'|'.join(map(re.escape, sorted(kept, key=len, reverse=True)))})")
        self._starts = re.compile(f"[{re.escape(''.join({text[0] for text in found}))}]" if found else r"(?!)")
        self._rests = tuple(rests)
        self._names = frozenset(names)
        self._look = look

    def cut(self, text: str) -> str:
        """The text with a cut inside of each control token's text, so that its parts are encoded apart."""
        looks = self._looks_like(text)
        # Where each character of what the tokenizer sees comes from.
        places = (
            None
            if looks == text
            else [place for place, character in enumerate(text) for _ in self._looks_like(character)]
        )
        parts, start, at = [], 0, 0
        while (found := self._pattern.search(looks, at)) is not None:
            at = found.start() + 1  # marks may overlap
            if found[0] not in self._kept:
                end = at if places is None else places[found.start()] + 1
                parts.append(text[start:end])
                start = end
        return CUT.join((*parts, text[start:]))

    def disarmed(self, text: str) -> str:
        """The text with other characters wherever a control token could begin, and before what could end one."""
        parts = self._between.split(text) if self._kept else [text]
        parts[::2] = [self._starts.sub(HARMLESS, self._looks_like(part)) for part in parts[::2]]
        changed = "".join(parts)
        if self._may_complete(text.strip()):
            place = len(changed) - len(changed.lstrip())
            changed = changed[:place] + HARMLESS + changed[place:]
        return changed

    def disarmed_key(self, key: str) -> str:
        """A key of an object; plain words stay, unless they may complete a control token."""
        is_plain = key.isidentifier() and not self._may_complete(key)
        return key if is_plain or key in self._names else self.disarmed(key)

    def _may_complete(self, text: str) -> bool:
        return bool(text) and any(text.startswith(rest) or rest.startswith(text) for rest in self._rests)

    def _looks_like(self, text: str) -> str:
        """The text as the tokenizer's normalizer makes it, one character at a time."""
        if self._look is None:
            return text
        looks = {ord(character): look for character in set(text) if (look := self._look(character)) != character}
        return text.translate(looks) if looks else text
