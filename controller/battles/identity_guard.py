"""Whether an answer reveals its model: text that names a model or a maker as the speaker's own identity.

A heuristic in several languages: a phrase of the first person ("I am", "trained by", "mein Name ist") and a name, close
together in one sentence. Names from the visitor's own prompts do not count. Knows no battle.
"""

import re
from collections.abc import Callable, Iterable, Sequence

REACH_CHARS = 80  #: a name belongs to a phrase when it begins within this distance after it

#: Well-known makers and model families; the arena's own models are added at run time.
KNOWN_NAMES = (
    "ai21", "alibaba", "amazon", "anthropic", "baichuan", "baidu", "bard", "bytedance", "chatglm", "chatgpt", "claude",
    "cohere", "command-r", "copilot", "deepmind", "deepseek", "doubao", "ernie", "falcon", "gemini", "gemma", "gpt",
    "gpt-3", "gpt-3.5", "gpt-4", "gpt-4o", "gpt-5", "grok", "hunyuan", "ibm granite", "internlm", "kimi", "llama",
    "meta ai", "microsoft", "minimax", "mistral", "mixtral", "moonshot", "nemotron", "nvidia", "olmo", "openai", "palm",
    "phi-3", "phi-4", "qwen", "qwq", "smollm", "tencent", "tongyi", "vicuna", "xai", "yi-34b", "zhipu",
)  # fmt: skip

_FIRST_PERSON = re.compile(
    r"\b(?:i\s+am|i['\u2019]m|im|my\s+name\s+is|call\s+me|as\s+an?\s+(?:ai|assistant|chatbot|large|language|model)"
    r"|(?:created|developed|trained|made|built|designed|fine-?tuned)\s+by"
    r"|ich\s+bin|mein\s+name\s+ist|entwickelt\s+von|trainiert\s+von|je\s+suis|je\s+m['\u2019]appelle|mon\s+nom\s+est"
    r"|d\xe9velopp\xe9e?\s+par|cr\xe9\xe9e?\s+par|entra\xeen\xe9e?\s+par|soy|me\s+llamo|mi\s+nombre\s+es|desarrollado\s+por"
    r"|creado\s+por|entrenado\s+por|sono|mi\s+chiamo|eu\s+sou|meu\s+nome)\b"
    # "I am", "I am called", "my name", "developed by", "trained by" in Chinese; "I", "my name is" in Korean
    r"|\u6211\u662f|\u6211\u53eb|\u6211\u7684\u540d\u5b57|\u5f00\u53d1\u7684|\u8bad\u7ec3\u7684"
    r"|\uc800\ub294|\ub098\ub294|\uc81c \uc774\ub984\uc740",
    re.IGNORECASE,
)
#: In Chinese the maker stands before the verb ("developed by X" reads "by X developed").
_BEFORE_CHARS = 20
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|[\n\u3002\uff01\uff1f]")


class IdentityGuard:
    """Checks answers against well-known names and those of `models`, the models registered in this arena."""

    def __init__(self, models: Callable[[], Iterable[str]]) -> None:
        self._models = models

    def is_revealed(self, answers: Sequence[str], prompts: Sequence[str]) -> bool:
        """Whether any of `answers` claims a name that does not stand in `prompts`."""
        names = self._names(" \n ".join(prompts).lower())
        return bool(names) and any(_claims(answer, names) for answer in answers)

    def _names(self, prompts: str) -> list[re.Pattern[str]]:
        wanted = {*KNOWN_NAMES, *(part for model in self._models() for part in _spellings(model))}
        patterns = (_name_pattern(name) for name in sorted(wanted))
        return [pattern for pattern in patterns if not pattern.search(prompts)]


def _claims(answer: str, names: list[re.Pattern[str]]) -> bool:
    for sentence in _SENTENCE_END.split(answer.lower()):
        for phrase in _FIRST_PERSON.finditer(sentence):
            near = sentence[max(0, phrase.start() - _BEFORE_CHARS) : phrase.end() + REACH_CHARS]
            if any(name.search(near) for name in names):
                return True
    return False


def _spellings(model: str) -> set[str]:
    """Spellings of a registered name in prose: without the publisher, with blanks for dashes."""
    name = model.lower().rsplit("/", 1)[-1]
    return {name, name.replace("-", " ").replace("_", " ")}


def _name_pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9])")
