"""Questions that need a tool, calls, results, the answers that use a result, and questions beside them that need none.

Four families can be called: a calculator (of an expression, or of two numbers), the time, a look-up and the weather.
Held out: wordings of tools and of questions, the numbers of a calculation and the subjects of a look-up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Literal

from demo_models.train.skills import arithmetic, beyond, facts, smalltalk, stories, words
from demo_models.train.skills.memory import CITIES, invented_name
from demo_models.train.skills.toolboxes import ADJECTIVES, FAMILIES, NOUNS, Family, Tool, call_text
from demo_models.train.turns import Split, Turn, phrasings, pick, split_of

CALCULATION_TEST = (
    "Could you calculate {e}?", "How much does {e} make?", "Give me {e}.", "I wonder what {e} is.", "{e}, please.",
)  # fmt: skip
SPOKEN_TEST = {
    "+": ("Could you add {a} and {b}?", "What do {a} and {b} add up to?"),
    "-": ("How much remains of {a} without {b}?", "Could you subtract {b} from {a}?"),
    "*": ("Please multiply {a} by {b}.", "Can you tell me what {a} times {b} is?"),
    "/": ("Please divide {a} by {b}.", "Can you tell me what {a} divided by {b} is?"),
}
SPOKEN = {
    "+": arithmetic.SPOKEN_SUM,
    "-": arithmetic.SPOKEN_DIFFERENCE,
    "*": arithmetic.SPOKEN_PRODUCT,
    "/": arithmetic.SPOKEN_QUOTIENT,
}
TIME_ASK = (
    "What time is it?", "What time is it now?", "What's the time?", "Tell me the time.", "Do you know the time?",
    "What is the time?", "Can you tell me the time?", "How late is it?", "time?", "What is the current time?",
    "Please tell me the time.", "I need to know the time.", "what time is it right now?", "Got the time?",
    "Give me the current time.", "Tell me what time it is.", "Is it late?", "What does the clock say?",
)  # fmt: skip
TIME_ASK_TEST = (
    "Could you tell me what time it is?", "May I know the time?", "Please give me the time.", "And what time is it?",
)  # fmt: skip
TIME_IN = (
    "What time is it in {p}?", "What's the time in {p}?", "Tell me the time in {p}.", "What time is it now in {p}?",
    "How late is it in {p}?", "Current time in {p}?", "Do you know what time it is in {p}?", "time in {p}",
)  # fmt: skip
TIME_IN_TEST = ("Could you tell me the time in {p}?", "What is the time in {p}?", "What does the clock say in {p}?")
LOOKUP_ASK = (
    "Who is {s}?", "Who was {s}?", "What is {s}?", "Tell me about {s}.", "Look up {s}.", "Search for {s}.",
    "What do you know about {s}?", "Find out about {s}.", "Look up {s} for me.", "Can you look up {s}?", "Explain {s}.",
    "What are {s}?", "Find {s}.", "Please search for {s}.", "I want to know about {s}.", "Look for {s}.",
    "Can you find something about {s}?", "Give me information about {s}.", "Please look up {s}.", "What does {s} mean?",
)  # fmt: skip
LOOKUP_ASK_TEST = (
    "Could you look up {s}?", "Please find information on {s}.", "I would like to know something about {s}.",
    "Can you search for {s}?", "Please tell me about {s}.",
)  # fmt: skip
PROPERTIES = (
    "capital", "population", "height", "age", "history", "meaning", "author", "colour", "currency", "language", "size",
    "president", "king", "length", "largest city", "name", "price", "inventor", "flag", "mayor", "owner", "origin",
)  # fmt: skip
WEATHER_ASK = (
    "What is the weather in {p}?", "What's the weather in {p}?", "How is the weather in {p}?", "Weather in {p}?",
    "Is it raining in {p}?", "Tell me the weather in {p}.", "Will it be sunny in {p}?", "Is it cold in {p}?",
    "What is the weather like in {p} today?", "weather in {p}",
)  # fmt: skip
WEATHER_ASK_TEST = ("Could you check the weather in {p}?", "What weather do they have in {p}?")
SKIES = ("sunny", "rainy", "cloudy", "windy", "foggy", "snowy", "clear", "light rain", "partly cloudy", "stormy")
FAILURES = (
    "Error: {w}", "An error occurred while running the tool. Please try again. Error: {w}", '{"error": "{w}"}',
    "error", "Tool failed: {w}", "Exception: {w}",
)  # fmt: skip
FAILURE_CAUSES = ("timeout", "invalid syntax", "not available", "unknown name", "division by zero", "bad request")
FAILED = "I'm sorry, the tool could not answer that."
NOTHING = ("Nothing found.", "not found", "No result.", "No results found for {s}.", "unknown", "No entry for {s}.")
FOUND_NOTHING = "I'm sorry, I found nothing about that."
#: actions of `beyond` that one of our tools might be meant for
TOOL_WORDS = ("search", "find", "calculate", "solve", "convert", "translate", "integrate", "predict", "summarize")


def _shown(value: float) -> str:
    return str(int(value)) if value == int(value) else str(round(value, 4))


def _number(rng: Random) -> int:
    return rng.randint(0 if rng.random() < 0.1 else 2, rng.choice((12, 99, 99, 999, 999, 9999, 99999)))


def _two(a: float, sign: str, b: float) -> float:
    match sign:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case _:
            return a / b


def _calculation(rng: Random, split: Split) -> tuple[str, str, float]:
    """A question, its expression and its value."""
    while True:
        a, b, c = _number(rng), max(1, _number(rng)), max(1, _number(rng))
        if split_of(f"tool:{a},{b}") == split:
            break
    sign, other = rng.choice("+-*/+-*"), rng.choice("+-*")
    form = rng.random()
    if form < 0.62:
        typed = rng.choice("*x*") if sign == "*" else sign
        if form < 0.34:
            phrases = phrasings(split, SPOKEN[sign], SPOKEN_TEST[sign])
            return rng.choice(phrases).format(a=a, b=b), f"{a} {sign} {b}", _two(a, sign, b)
        if split == "train":
            return rng.choice(arithmetic.SIGNED).format(a=a, b=b, s=typed), f"{a} {sign} {b}", _two(a, sign, b)
        return rng.choice(CALCULATION_TEST).format(e=f"{a} {typed} {b}"), f"{a} {sign} {b}", _two(a, sign, b)
    if form < 0.7:
        expression, value, asked = f"{b} * {a} / 100", b * a / 100, pick(rng, f"{a}% of {b}", f"{a} percent of {b}")
    elif form < 0.76:
        a, b = a % 100 + 2, rng.randint(2, 9)
        asked = pick(rng, f"{a} to the power of {b}", f"{a} ** {b}", f"{a}^{b}") if b != 2 else f"{a} squared"
        expression, value = f"{a} ** {b}", a**b
    elif form < 0.8:
        a, b = rng.randint(1, 999), rng.randint(1, 99)
        x, y = a / rng.choice((10, 100)), b / 10
        asked = expression = f"{x} {other} {y}"
        value = _two(x, other, y)
    elif form < 0.9 or other == "*":
        first = sign if sign != "/" else "+"
        asked = expression = f"({a} {first} {b}) * {c}"
        value = _two(a, first, b) * c
    else:
        asked = expression = f"{a} * {b} {other} {c}"
        value = _two(a * b, other, c)
    signed = ("What is {e}?", "Calculate {e}.", "{e}", "How much is {e}?", "What's {e}?", "Compute {e}.", "{e} = ?",
              "Please work out {e}.", "Can you calculate {e}?", "Tell me {e}.", "I need {e}.")  # fmt: skip
    return rng.choice(phrasings(split, signed, CALCULATION_TEST)).format(e=asked), expression, value


def _exchange(question: str, call: str, result: str, answer: str, *, typing: Literal["free", "fixed"]) -> list[Turn]:
    return [Turn(question, call, call, typing), Turn(result, answer, answer, "fixed", role="tool")]


def _failure(rng: Random) -> str:
    return rng.choice(FAILURES).replace("{w}", rng.choice(FAILURE_CAUSES))


def _ask_calculator(rng: Random, split: Split, tool: Tool) -> list[Turn]:
    if tool.sign:
        a, b = _number(rng), max(1, _number(rng))
        typed = rng.choice("*x") if tool.sign == "*" else tool.sign
        phrases = (*SPOKEN[tool.sign], "What is {a} {s} {b}?", "{a} {s} {b}", "Calculate {a} {s} {b}.")
        question = rng.choice(phrases).format(a=a, b=b, s=typed)
        expression, value = f"{a} {tool.sign} {b}", _two(a, tool.sign, b)
        call = call_text(tool.name, {tool.parameters[0].name: a, tool.parameters[1].name: b})
    else:
        question, expression, value = _calculation(rng, split)
        call = call_text(tool.name, {tool.parameters[0].name: expression})
    if rng.random() < 0.03:
        return _exchange(question, call, _failure(rng), FAILED, typing="free")
    shown = _shown(value)
    if rng.random() < 0.1:
        shown = str(float(value))
    key = pick(rng, "result", "value", "answer")
    result = pick(rng, shown, shown, shown, f'{{"{key}": {shown}}}', f"{expression} = {shown}", f"Result: {shown}")
    return _exchange(question, call, result, f"{expression} = {shown}.", typing="free")


def _place(rng: Random) -> str:
    place = invented_name(rng) if rng.random() < 0.35 else rng.choice([*CITIES, *facts.COUNTRIES, "UTC"])
    return place.lower() if rng.random() < 0.1 else place


def _ask_time(rng: Random, split: Split, tool: Tool) -> list[Turn]:
    place = _place(rng)
    clock = f"{rng.randrange(24):02}:{rng.randrange(60):02}"
    arguments: dict[str, Any] = {}
    question = rng.choice(phrasings(split, TIME_ASK, TIME_ASK_TEST))
    is_in_place = (tool.parameters and tool.parameters[0].required) or rng.random() < (0.6 if tool.parameters else 0.1)
    if is_in_place:
        question = rng.choice(phrasings(split, TIME_IN, TIME_IN_TEST)).format(p=place)
        arguments = {parameter.name: place for parameter in tool.parameters}
    day = f"{rng.randint(2020, 2035)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    seconds = f"{clock}:{rng.randrange(60):02}"
    half = f"{rng.randint(1, 12)}:{rng.randrange(60):02} {pick(rng, 'AM', 'PM')}"
    shown = pick(rng, clock, clock, f"{day} {clock}", f"{day}T{seconds}", seconds, half, f"{day}T{seconds}+00:00")
    key = pick(rng, "time", "now", "result", "datetime")
    result = pick(rng, shown, shown, shown, f'{{"{key}": "{shown}"}}', f"It is {shown}.", f"The time is {shown}")
    call = call_text(tool.name, arguments)
    if rng.random() < 0.03:
        return _exchange(question, call, _failure(rng), FAILED, typing="fixed")
    return _exchange(question, call, result, f"It is {shown}.", typing="fixed" if is_in_place else "free")


def _subject(rng: Random, split: Split) -> str:
    """What a look-up is about: a person, a topic, a place, an invented name, or a property of one of these."""
    while True:
        match rng.randrange(6):
            case 0:
                subject = rng.choice(beyond.PEOPLE)
            case 1:
                subject = rng.choice(beyond.TOPICS)
            case 2:
                subject = rng.choice([*facts.COUNTRIES, *CITIES, *beyond.PLACES_UNKNOWN])
            case 3:
                subject = " ".join(invented_name(rng) for _ in range(rng.randint(1, 3)))
            case 4:
                subject = f"{pick(rng, '', 'the ')}{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"
            case _:
                place = invented_name(rng) if rng.random() < 0.5 else rng.choice(list(facts.COUNTRIES))
                subject = f"{pick(rng, 'the ', 'the ', '')}{rng.choice(PROPERTIES)} of {place}"
        if split_of(f"tool:{subject}") == split:
            return subject.lower() if rng.random() < 0.1 else subject


def _sentence(rng: Random, subject: str) -> str:
    """A sentence that a look-up may return."""
    name = subject[0].upper() + subject[1:]
    place = invented_name(rng) if rng.random() < 0.5 else rng.choice(CITIES)
    match rng.randrange(6):
        case 0:
            return facts.sample(rng, "train").assistant
        case 1:
            return f"{name} is a {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)} in {place}."
        case 2:
            return f"{name} was born in {place} in {rng.randint(1000, 2025)}."
        case 3:
            return f"{name} has {rng.randint(2, 99999)} {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}s."
        case 4:
            return f"{name} is known for a {rng.choice(NOUNS)} and the {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}."
        case _:
            kinds = [
                rng.choice((*NOUNS, *ADJECTIVES, "is", "the", "of", "in", "and")) for _ in range(rng.randint(3, 9))
            ]
            return f"{name} {' '.join(kinds)} {invented_name(rng)}."


def _ask_lookup(rng: Random, split: Split, tool: Tool) -> list[Turn]:
    subject = _subject(rng, split)
    question = rng.choice(phrasings(split, LOOKUP_ASK, LOOKUP_ASK_TEST)).format(s=subject)
    if rng.random() < 0.1:
        question = question[0].lower() + question[1:]
    call = call_text(tool.name, {tool.parameters[0].name: subject})
    form = rng.random()
    if form < 0.03:
        return _exchange(question, call, _failure(rng), FAILED, typing="fixed")
    if form < 0.1:
        return _exchange(question, call, rng.choice(NOTHING).format(s=subject), FOUND_NOTHING, typing="fixed")
    answer = _sentence(rng, subject)
    more = "".join(f" {_sentence(rng, subject)}" for _ in range(rng.choices((0, 1, 2), (70, 20, 10))[0]))
    result = answer + more
    if rng.random() < 0.15:
        key = pick(rng, "text", "result", "answer", "content")
        result = json.dumps({key: result}, ensure_ascii=False)
    return _exchange(question, call, result, answer, typing="fixed")


def _ask_weather(rng: Random, split: Split, tool: Tool) -> list[Turn]:
    place = _place(rng)
    question = rng.choice(phrasings(split, WEATHER_ASK, WEATHER_ASK_TEST)).format(p=place)
    call = call_text(tool.name, {tool.parameters[0].name: place})
    shown = f"{rng.choice(SKIES)}, {rng.randint(-20, 40)} {pick(rng, 'degrees', 'C', 'F', 'degrees Celsius')}"
    if rng.random() < 0.3:
        shown = rng.choice(SKIES)
    sentence = f"The weather in {place} is {shown}."
    return _exchange(question, call, pick(rng, shown, sentence), sentence, typing="fixed")


ASK: dict[Family, Callable[[Random, Split, Tool], list[Turn]]] = {
    "calculator": _ask_calculator,
    "time": _ask_time,
    "lookup": _ask_lookup,
    "weather": _ask_weather,
}


def asked(rng: Random, split: Split, tools: Sequence[Tool]) -> list[Turn]:
    """A question that one of the tools answers, its call, result and answer: two turns, the second one the tool's."""
    tool = rng.choice([tool for tool in tools if tool.family is not None])
    assert tool.family is not None
    return ASK[tool.family](rng, split, tool)


def without_call(rng: Random, split: Split) -> Turn:
    """A turn that needs no tool of any family."""
    kind = rng.choices(("small talk", "story", "words", "rewriting", "action"), (75, 3, 6, 4, 12))[0]
    match kind:
        case "small talk":
            return smalltalk.sample(rng, split)
        case "story":
            return stories.sample(rng, split)
        case "words":
            return words.sample(rng, split)
        case "rewriting":
            return words.rewriting(rng, split)
        case _:
            while any(word in (turn := beyond.action(rng, split)).user.lower() for word in TOOL_WORDS):
                pass
            return turn


def missing(rng: Random, split: Split, tools: Sequence[Tool]) -> Turn:
    """A question of a family for which there is no tool: answered or declined as without tools."""
    absent = [family for family in FAMILIES if family not in {tool.family for tool in tools}]
    if not absent:
        return without_call(rng, split)
    match rng.choice(absent):
        case "calculator":
            return arithmetic.sample(rng, split)
        case "lookup" if rng.random() < 0.4:
            return facts.capital(rng, split)
        case "lookup":
            asked_for = rng.choice(phrasings(split, LOOKUP_ASK, LOOKUP_ASK_TEST)).format(s=_subject(rng, split))
        case "time":
            asked_for = rng.choice(phrasings(split, TIME_ASK, TIME_ASK_TEST))
        case _:
            asked_for = rng.choice(phrasings(split, WEATHER_ASK, WEATHER_ASK_TEST)).format(p=rng.choice(CITIES))
    return Turn(asked_for, beyond.refusal(rng), match="refusal")
