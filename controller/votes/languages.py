"""The language of a text by rules: its script, and for scripts of many languages its most frequent words. Pure.

Prompts are short and mix code with words, so a text without enough evidence has no language here.
"""

import re
from collections import Counter
from typing import Final

#: Scripts that tell the language, or the most likely one: ISO 639-1 code and the characters. Kana comes before Han,
#: because Japanese has both.
_SCRIPTS: Final = (
    ("ja", re.compile(r"[\u3041-\u30ff]")),
    ("ko", re.compile(r"[\uac00-\ud7af\u1100-\u11ff]")),
    ("zh", re.compile(r"[\u4e00-\u9fff\u3400-\u4dbf]")),
    ("th", re.compile(r"[\u0e01-\u0e5b]")),
    ("el", re.compile(r"[\u0370-\u03ff]")),
    ("he", re.compile(r"[\u0590-\u05ff]")),
    ("hi", re.compile(r"[\u0900-\u097f]")),
    ("bn", re.compile(r"[\u0980-\u09ff]")),
    ("ta", re.compile(r"[\u0b80-\u0bff]")),
    ("ka", re.compile(r"[\u10a0-\u10ff]")),
    ("hy", re.compile(r"[\u0530-\u058f]")),
)
_CYRILLIC: Final = re.compile(r"[\u0400-\u04ff]")
_UKRAINIAN: Final = re.compile(r"[\u0456\u0457\u0454\u0491]", re.IGNORECASE)
_ARABIC: Final = re.compile(r"[\u0600-\u06ff]")
_PERSIAN: Final = re.compile(r"[\u067e\u0686\u0698\u06af\u06cc]")
_LETTER: Final = re.compile(r"[^\W\d_]")
_WORD: Final = re.compile(r"[^\W\d_]+")
_LEAST_SHARE: Final = 0.2  #: of the letters: a French text that quotes one Greek word is French
_KANA_SHARE: Final = 0.05  #: Japanese text may be Han for the most part
_MAX_CHARS: Final = 4000

#: Frequent words that few of the other languages have.
_WORDS: Final[dict[str, frozenset[str]]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": "the is are of to and what how you your write with for that this can does it in i my please explain why",
        "de": "der die das ist und ein eine nicht wie ich mir mit auf was schreibe bitte den dem zu von warum erkläre",
        "fr": "le la les est et un une des que qui pour dans je vous comment pourquoi du avec quel quelle écris sur",
        "es": "el los las es y un una que por para cómo qué con en del escribe puedes me lo cuál por favor explica",
        "it": "il lo gli è e un una che per come cosa con del della scrivi perché sono mi di quale puoi spiega",
        "pt": "o os as é e um uma que para como com não do da em você escreva por qual explique mais são",
        "nl": "de het een en is van wat hoe ik je niet met voor op schrijf waarom zijn dat deze leg uit kun",
        "pl": "jest i w na nie co jak to się z do czy dlaczego napisz mi o jaki które proszę wyjaśnij",
        "tr": "bir ve bu ne nas\u0131l için ile neden mi yaz var olarak hangi lütfen çok nedir aç\u0131kla",
        "sv": "och är det en ett att som för hur vad inte jag med skriv varför den på förklara",
        "cs": "je a v na se co jak to z do proč napiš který jsou nebo pro můžeš vysvětli",
        "vi": "là và của có cho tôi như thế nào một những viết hãy tại sao không được bạn",
        "id": "yang dan di ini itu apa bagaimana untuk dengan saya adalah dari tulis mengapa tidak jelaskan tolong",
    }.items()
}


def language_of(text: str) -> str | None:
    """ISO 639-1 code of a text's language; None if there is too little to tell. Looks at the first 4,000 characters."""
    text = text[:_MAX_CHARS]
    num_letters = len(_LETTER.findall(text))
    if not num_letters:
        return None
    for language, script in _SCRIPTS:
        share = len(script.findall(text)) / num_letters
        if share >= (_KANA_SHARE if language == "ja" else _LEAST_SHARE):
            return language
    if len(_CYRILLIC.findall(text)) / num_letters >= _LEAST_SHARE:
        return "uk" if _UKRAINIAN.search(text) else "ru"
    if len(_ARABIC.findall(text)) / num_letters >= _LEAST_SHARE:
        return "fa" if _PERSIAN.search(text) else "ar"
    return _by_words(_WORD.findall(text.lower()))


def _by_words(words: list[str]) -> str | None:
    """The language with most frequent words here, if it has more than any other."""
    hits = Counter({language: sum(word in frequent for word in words) for language, frequent in _WORDS.items()})
    (first, most), (_, second) = hits.most_common(2)
    return first if most > second else None
