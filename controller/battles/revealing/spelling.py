"""One spelling for text that hides a name: wide or look-alike letters, invisible characters, markup, spaced letters.

`fold` works letter by letter and is applied to phrases and texts alike; `plain` also takes the markup off a text. The
table of look-alikes is a small part of Unicode's confusables (UTS #39): letters that are drawn like a Latin one.
"""

import re
import unicodedata

_LATIN = {
    "a": "\u0430\u03b1\u0251\u1d00", "b": "\u0432\u0299", "c": "\u0441\u1d04\u03f2", "d": "\u0501\u0257\u1d05",
    "e": "\u0435\u0454\u03b5\u1d07\u0259", "f": "\u0192\ua730", "g": "\u0261\u0262\u0581", "h": "\u04bb\u029c\u043d",
    "i": "\u0456\u03b9\u0131\u026a\u0269", "j": "\u0458\u1d0a", "k": "\u043a\u03ba\u1d0b",
    "l": "\u04cf\u029f\u0142\u01c0", "m": "\u043c\u1d0d", "n": "\u0578\u0274\u03b7",
    "o": "\u043e\u03bf\u1d0f\u0585\xf8", "p": "\u0440\u03c1\u1d18", "q": "\u051b\u0566", "r": "\u0433\u0280\u1d26",
    "s": "\u0455\ua731", "t": "\u0442\u03c4\u1d1b", "u": "\u057d\u1d1c\u03c5", "v": "\u03bd\u0475\u1d20",
    "w": "\u051d\u0461\u1d21", "x": "\u0445\u03c7", "y": "\u0443\u028f\u03b3", "z": "\u1d22\u0290",
}  # fmt: skip
_ALIKE = {ord(other): latin for latin, others in _LATIN.items() for other in others}
_ALIKE |= {ord(chr(code).upper()): latin.upper() for code, latin in _ALIKE.items() if len(chr(code).upper()) == 1}
_ALIKE |= {ord(mark): '"' for mark in "\u201c\u201d\u201e\xab\xbb\u300c\u300d\u300e\u300f\u300a\u300b"}
_ALIKE |= {ord(mark): "'" for mark in "\u2018\u2019\u02bc\u02bb\u2032"}
_ALIKE |= {ord(mark): "-" for mark in "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"}
_ALIKE |= {ord("\u3001"): ",", ord("\u060c"): ",", ord("\u3002"): ".", ord("\u0964"): ".", ord("\u03c2"): "\u03c3"}
_ALIKE |= {ord("\u0131"): "i", ord("\u0130"): "I", ord("\xdf"): "ss", ord("\u0111"): "d", ord("\xe6"): "ae"}

#: Accents of Latin, Greek and Cyrillic letters, and strokes through letters. Vowel signs of other scripts stay.
_ACCENT = re.compile("[\u0300-\u036f\u0483-\u0489\u064b-\u0652\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe2f]")
_TAG = re.compile(r"</?[a-z][^<>\n]{0,80}>", re.IGNORECASE)
_MARKUP = re.compile(r"[*`#]+|~~+")
#: Four or more single letters with the same sign between them: "R a v e n", "C-l-a-u-d-e".
_SPACED = re.compile(r"(?<![^\W_])[^\W\d_]([ .*_\-|/])(?:[^\W\d_]\1){2,}[^\W\d_](?![^\W_])")


def fold(text: str) -> str:
    """`text` with compatible, accented and look-alike letters replaced by plain ones, and without invisible
    characters. Upper case stays, so that names can be told from words."""
    composed = unicodedata.normalize("NFKC", text.replace("\u00b4", "'"))  # NFKC would part it from its letter
    if composed.isascii():
        return composed
    seen = "".join(char for char in composed if unicodedata.category(char) != "Cf")
    bare = unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFD", seen)))
    return bare.translate(_ALIKE)


def plain(text: str) -> str:
    """`fold` of a text in Markdown or HTML, without markup and pictures, and with spaced words joined."""
    joined = _SPACED.sub(lambda word: re.sub(r"[\W_]", "", word.group()), fold(text))
    bare = _MARKUP.sub("", _TAG.sub("", joined)).replace("_", " ")
    return bare if bare.isascii() else "".join(" " if unicodedata.category(char) == "So" else char for char in bare)
