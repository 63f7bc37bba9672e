"""Kinds of prompt and answer, by rules, for the boards of categories: a vote gets them when it is cast. Pure.

The rules look at words and marks, like the first ones of the public arenas; they miss some and are the same for every
model. Every repetition in them is bounded, so that no prompt takes long. Whether a conversation has several turns the
vote says itself.
"""

import re
from collections.abc import Sequence
from typing import Final, Literal

Category = Literal["code", "maths", "creative", "short_prompt", "long_prompt", "short_answers", "long_answers"]

SHORT_PROMPT_WORDS: Final = 10  #: of the first message
LONG_PROMPT_CHARS: Final = 1500
SHORT_ANSWER_CHARS: Final = 400  #: of both answers to the last message together
LONG_ANSWER_CHARS: Final = 4000

_MAX_CHARS: Final = 20_000  #: of each text that the rules read

_CODE: Final = re.compile(
    r"```|^[ \t]{0,40}(?:def|class|import|from|#include|using|public|fn|func|function|SELECT|INSERT)\b.*[(:;{<]"
    r"|\b(?:python|javascript|typescript|java|c\+\+|c#|rust|golang|kotlin|swift|sql|html|css|bash|regex|numpy|pandas"
    r"|react|django|fastapi|docker|kubernetes|git|json|api|unit test|stack trace|compiler?|debug|refactor|segfault"
    r"|traceback|syntax error|source code|code review|algorithm)\b",
    re.IGNORECASE | re.MULTILINE,
)
_MATHS: Final = re.compile(
    r"\\(?:frac|int|sum|sqrt|lim|begin\{(?:equation|align|matrix|pmatrix))|\$[^$\n]{0,100}[=^_\\][^$\n]{0,100}\$"
    r"|\d ?[-+*/^=\u00d7÷] ?\(? ?\d|\b[a-z] ?(?:\^|\*\*) ?\d|\b\d{0,9}[a-z] ?[-+] ?\d{1,9} ?="
    r"|\b(?:equation|integral|derivative|theorem|lemma|matrix|eigenvalues?|polynomial|probability that|modulo"
    r"|prime number|arithmetic|algebra|geometry|calculus|trigonometr\w+|logarithm|factorial|prove that|solve for"
    r"|gleichung|ableitung|wahrscheinlichkeit|équation|dérivée|ecuación|derivada|equazione)\b"
    r"|方程|积分|导数|概率|数学|방정식|적분",
    re.IGNORECASE,
)
_WORKS: Final = (
    r"(?:short |long |funny |sad |little )?(?:story|poem|haiku|limerick|sonnet|song|lyrics|rap|novel|chapter|screenplay"
    r"|scene|dialogue|monologue|fairy tale|fable|joke|slogan|tagline|speech|script|fan ?fiction|ballad|bedtime story)"
)
_CREATIVE: Final = re.compile(
    rf"\b(?:write|compose|make up|invent|create|tell)\b[^.?!\n]{{0,60}}\b{_WORKS}\b|\b(?:role-?play|pretend to be)\b"
    r"|\b(?:schreibe?|erfinde|dichte|erzähle?)\b[^.?!\n]{0,60}\b(?:gedicht|geschichte|lied|märchen|witz|roman)\b"
    r"|\b(?:écris|raconte|invente|compose)\b[^.?!\n]{0,60}\b(?:poème|histoire|chanson|conte|blague|nouvelle)\b"
    r"|\b(?:escribe|inventa|cuenta)\b[^.?!\n]{0,60}\b(?:poema|historia|cuento|canción|chiste)\b"
    r"|写[^\u3002\uff1f\uff01\n]{0,20}(?:诗|故事|小说|歌词|笑话)"
    r"|(?:시|이야기|소설|노래)[를을]?\s?(?:써|지어|작성)",
    re.IGNORECASE,
)


def categories_of(prompts: Sequence[str], answers: Sequence[str]) -> tuple[Category, ...]:
    """The kinds of a conversation: `prompts` are the visitor's messages, `answers` both answers to the last one."""
    asked = "\n".join(prompts)[:_MAX_CHARS]
    first = prompts[0][:_MAX_CHARS] if prompts else ""
    num_chars = sum(len(answer) for answer in answers)
    holds: dict[Category, bool] = {
        "code": _CODE.search(asked) is not None or any("```" in answer for answer in answers),
        "maths": _MATHS.search(asked) is not None,
        "creative": _CREATIVE.search(asked) is not None,
        "short_prompt": 0 < len(first.split()) <= SHORT_PROMPT_WORDS and len(first) <= 6 * SHORT_PROMPT_WORDS,
        "long_prompt": len(first) >= LONG_PROMPT_CHARS,
        "short_answers": num_chars <= SHORT_ANSWER_CHARS,
        "long_answers": num_chars >= LONG_ANSWER_CHARS,
    }
    return tuple(category for category, holds_it in holds.items() if holds_it)
