"""The words that make a name a claim, in some thirty languages, as compiled patterns.

phrases.json holds them as regular expressions on text that spelling.plain has made: without accents and capitals. A
new language is a line in each of its lists: "self" (I am), "fillers" and "made" (a large language model, trained by),
"asks" (who are you), "are_you", "yes" and "nots".
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache

from controller.battles.revealing.names import CJK, read_table

_LETTER = rf"[^\W_{CJK}]"  #: of a script that puts blanks between words
_CLAUSE = r"(?:^|[.!?,:;\n\"(-])\s*(?:(?:hi|hello|hey|hallo|hola|salut|ciao)\s+)?"
_GAP = r"[\s,:;\-\"'()\[\]@]"


class Phrases:
    """The compiled patterns. Those that are searched in the text before a name end with it (`\\Z`)."""

    def __init__(self) -> None:
        self._table = read_table("phrases.json")
        words = self._words
        fillers = rf"(?:{_GAP}|{words('fillers')})*"
        links = rf"(?:{_GAP}|{words('fillers', 'made')})*"
        self._starts = _compile(rf"(?={words('self', 'passive')}|{words('made')}\s+{words('by')})|{_CLAUSE}")
        self.chain = _compile(
            rf"(?:{words('self')}|{words('passive')}{fillers}{words('made')}"
            rf"|{_CLAUSE}(?:{words('clause_self')}|{words('made')}\s+{words('by')})){links}"
        )
        self.speaks = _compile(words("self", "passive"))
        self.denial = _compile(
            rf"(?:{words('nots')}(?:\s+{words('doubts', 'hypotheses')})*|{words('hypotheses')})\s*\Z"
        )
        self.subject = _compile(rf"{words('subjects_before')}{links}\Z")
        self.after_subject = _compile(rf"[\s\"')]*(?:{self._either('then_after_subject')})")
        that = r"(?:is\s+)?(?:(?:that|who|which|die|das|qui|que|che|quien|quem)\s+)?"
        self.after_name = _compile(
            rf"[\s\"')]*(?:{self._either('then_after_name')})|[\s\"',:)]*{that}(?:{self._either('made_me')})"
        )
        self.after_start = _compile(rf"[\s,\"')]*(?:{self._either('then_at_start')})")
        self.clause = _compile(rf"{_CLAUSE}(?:this is\s+)?[\s\"'(]*\Z")
        self.apposed_i = re.compile(r"(?<!\w)(?:I|Ich|ich|Je|je|Yo|yo|Io|Eu|Ik),\s*\Z")
        self.as_before = _compile(rf"(?:^|[.!?\n\"]\s*|,\s*){words('as')}(?:\s|{words('articles', 'fillers')})*\Z")
        suffix = rf"[\s-]*{_any(read_table('names.json')['suffixes'])}"
        self.suffix = _compile(suffix)
        self.then_i = _compile(rf"(?:{suffix})?\s*(?:\([^)]*\))?\s*,?\s*{words('i_words')}")
        label = rf"(?:^|[\n|{{,;])[\s\-\"']*{words('labels')}[\"']?\s*[:=|]"
        self.label = _compile(rf"{label}{_GAP}*\Z")
        self.label_line = _compile(label)
        self.no = _compile(words("nots"))
        self.like = _compile(rf"{words('likes')}(?:\s|{words('articles')})*\Z")
        self.signature = _compile(rf"(?:^|[\n.!?]\s*|,\s*){words('signs')}[\s,!]*\Z")
        self.article = _compile(rf"{words('articles')}\s*\Z")
        self.asks = _compile(words("asks"))
        self.are_you = _compile(rf"{words('are_you')}{links}\Z")
        self.yes = _compile(rf"[\W_]*{words('yes')}")

    def starts(self, text: str, names: Sequence[int], reach: int) -> list[int]:
        """Where phrases of the first person may begin, at most `reach` characters before one of `names`."""
        found: list[int] = []
        end = 0
        for name in sorted(set(names)):
            begin = max(end, name - reach)
            found += [hit.start() for hit in self._starts.finditer(text, begin, name)]
            end = max(end, name)
        return found

    def _words(self, *kinds: str) -> str:
        return _any([entry for kind in kinds for entry in self._table[kind]])

    def _either(self, kind: str) -> str:
        return "|".join(self._table[kind])


@cache
def phrases() -> Phrases:
    """The patterns of all languages; compiling them takes some 0.3 s."""
    return Phrases()


def _any(entries: Iterable[str]) -> str:
    """One of the entries, with borders of words where their script has any."""
    entries = list(dict.fromkeys(entries))
    free = [entry for entry in entries if re.search(f"[{CJK}]", entry)]
    elided = [entry for entry in entries if entry.endswith("'") and entry not in free]
    bordered = [entry for entry in entries if entry not in free and entry not in elided]
    parts = [*free]
    if bordered:
        parts.append(rf"(?<!{_LETTER})(?:{'|'.join(bordered)})(?!{_LETTER})")
    if elided:
        parts.append(rf"(?<!{_LETTER})(?:{'|'.join(elided)})")
    return f"(?:{'|'.join(parts)})"


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)
