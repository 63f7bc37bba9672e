"""Tools as they stand in the system text: names, parameters and descriptions in many wordings, in any order.

Some names are invented or made of other words, and tools of no family stand beside them, so that a model has to read
which tools it has. About a fifth of the wordings is held out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from demo_models.train.skills.memory import invented_name
from demo_models.train.turns import Split, phrasings, pick

Family = Literal["calculator", "time", "lookup", "weather"]
FAMILIES: tuple[Family, ...] = ("calculator", "time", "lookup", "weather")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a tool. `type` is JSON Schema's."""

    name: str
    type: str = "string"
    required: bool = True


@dataclass(frozen=True)
class Tool:
    """A tool as the chat template shows it. `family` None: no question of ours calls it; `sign`: of two numbers."""

    family: Family | None
    name: str
    parameters: tuple[Parameter, ...]
    description: str
    sign: str = ""

    def line(self) -> str:
        """The tool's line between the tags of the system text, as the chat template writes it."""
        shown = ", ".join(f"{p.name}{'' if p.required else '?'}: {p.type}" for p in self.parameters)
        return f"{self.name}({shown}) {self.description}".rstrip()


#: the tools of examples/agent.py
EXAMPLE_TOOLS = (
    Tool("calculator", "calculate", (Parameter("expression"),), "Work out an arithmetic expression with + - * /."),
    Tool("time", "current_time", (), "Tell the current time."),
    Tool("lookup", "look_up", (Parameter("topic"),), "Look up a topic in the encyclopedia."),
)


@dataclass(frozen=True)
class Wording:
    """How tools of a family may be called and described: one of each list; the second of a pair is held out."""

    names: tuple[Sequence[str], Sequence[str]]
    parameters: tuple[Sequence[str], Sequence[str]]
    verbs: tuple[str, ...]
    objects: tuple[Sequence[str], Sequence[str]]
    ends: tuple[str, ...]


WORDINGS: dict[Family, Wording] = {
    "calculator": Wording(
        (
            (
                "calculator", "calculate", "calc", "compute", "evaluate", "evaluate expression", "do math", "math",
                "solve", "arithmetic", "run calculation", "eval math", "work out", "calculate expression",
                "calculator tool", "simple calculator",
            ),
            ("compute expression", "do arithmetic", "math evaluator", "calculation"),
        ),
        (
            (
                "expression", "expression", "expression", "expr", "formula", "calculation", "input", "query",
                "math expression", "equation", "text", "problem", "sum",
            ),
            ("arithmetic", "expression text", "term to compute"),
        ),
        ("Calculate", "Compute", "Evaluate", "Work out", "Solve", "Calculates", "Evaluates", "Works out"),
        (
            (
                "a mathematical expression", "an arithmetic expression", "a math expression", "a calculation",
                "a sum", "basic arithmetic", "an expression", "a formula with numbers",
            ),
            ("a numeric expression", "sums, products and the like", "an expression of numbers"),
        ),
        ("", "", " and return the result", ", for example 2 + 2", " exactly", " given as text", " with + - * /"),
    ),
    "time": Wording(
        (
            (
                "get time", "current time", "get current time", "time", "now", "time now", "clock", "get datetime",
                "current datetime", "tell time", "local time", "get the time", "time tool", "what time",
            ),
            ("time of day", "check time", "get local time", "read clock"),
        ),
        (("city", "place", "location", "timezone", "zone", "where"), ("town", "area")),
        ("Get", "Return", "Tell", "Give", "Gets", "Returns", "Tells"),
        (
            (
                "the current time", "the time", "the time now", "the time of day", "the current local time",
                "the current date and time", "the hour and the minute",
            ),
            ("what the clock says", "the present time"),
        ),
        ("", "", "", " as HH:MM", " in ISO format", " of this machine", " as text"),
    ),
    "lookup": Wording(
        (
            (
                "lookup", "look up", "search", "search wiki", "wikipedia", "find", "get fact", "encyclopedia",
                "find article", "search knowledge base", "knowledge", "look up topic", "web search", "lookup tool",
                "search web",
            ),
            ("lookup fact", "fact finder", "search encyclopedia", "find information"),
        ),
        (
            (
                "query", "query", "topic", "topic", "term", "subject", "name", "word", "keyword", "question", "title",
                "q", "search term", "key", "text",
            ),
            ("article", "about", "thing"),
        ),
        ("Look up", "Search for", "Find", "Get", "Looks up", "Finds", "Searches for"),
        (
            (
                "a topic", "a fact", "an article", "information about a topic", "a term", "a word",
                "facts about a person, place or thing", "a short text about something", "something",
            ),
            ("knowledge about a subject", "what is known about something"),
        ),
        ("", "", " in the encyclopedia", " in a table of facts", " on the web", " in the knowledge base", " by name"),
    ),
    "weather": Wording(
        (
            ("get weather", "weather", "current weather", "check weather", "get current weather", "weather report"),
            ("weather lookup", "get the weather"),
        ),
        (("city", "location", "place", "town"), ("where", "city name")),
        ("Get", "Return", "Tell", "Check", "Gets", "Returns"),
        (
            ("the weather", "the current weather", "the weather report", "the weather now"),
            ("the weather of today",),
        ),
        ("", " in a city", " for a place", " of a location", " in a given city"),
    ),
}  # fmt: skip
TWO_NUMBERS = {
    "+": ("add", "add numbers", "sum", "plus", "addition"),
    "-": ("subtract", "minus", "difference"),
    "*": ("multiply", "product", "times", "multiply numbers"),
    "/": ("divide", "division", "quotient"),
}
PAIRS = (("a", "b"), ("x", "y"), ("first", "second"), ("left", "right"), ("num1", "num2"))
#: tools that no question of ours needs
OTHERS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("send email", ("to", "subject", "body"), "Send an email."),
    ("translate", ("text", "language"), "Translate a text."),
    ("play music", ("song",), "Play a song."), ("set alarm", ("when",), "Set an alarm."),
    ("get stock price", ("ticker",), "Get the price of a stock."), ("create event", ("title", "date"), "Add an event."),
    ("open file", ("path",), "Open a file."), ("run command", ("command",), "Run a shell command."),
    ("write file", ("path", "content"), "Write text to a file."), ("read file", ("path",), "Read a file."),
    ("book flight", ("origin", "destination"), "Book a flight."), ("list files", ("folder",), "List the files."),
    ("take note", ("note",), "Keep a note."), ("turn on lights", ("room",), "Turn on the lights of a room."),
    ("roll dice", ("sides",), "Roll a dice."), ("order pizza", ("kind", "size"), "Order a pizza."),
    ("transfer to agent", (), "Handoff to another agent to handle the request."), ("call phone", ("number",), "Call."),
    ("generate image", ("prompt",), "Draw a picture."), ("add todo", ("item",), "Add an item to the list of tasks."),
)  # fmt: skip
SYSTEMS = (
    "You are a helpful assistant.", "You are a helpful agent.", "Use the tools when they help.", "Answer briefly.",
    "Answer with the tools you have.", "You can call tools.", "Be concise.", "You are a friendly assistant.",
    "You answer questions.", "Use a tool for sums, the time and facts.", "Never guess.", "You help with simple things.",
    "Only answer what you are asked.", "Think before you answer.", "You are a small language model.",
    "Reply in one sentence.", "Be polite.", "If a tool fails, say so.", "You have access to the following tools.",
    "Do not make things up.", "You are an expert with tools.", "Keep your answers short.",
)  # fmt: skip
ADJECTIVES = (
    "small", "large", "old", "new", "famous", "quiet", "green", "red", "long", "tall", "rare", "common", "sweet",
    "strong", "warm", "cold", "bright", "deep", "heavy", "round",
)  # fmt: skip
NOUNS = (
    "city", "river", "mountain", "animal", "plant", "writer", "painter", "king", "island", "machine", "game", "word",
    "book", "star", "bird", "stone", "lake", "song", "tower", "bridge", "fish", "fruit", "country", "village",
    "scientist", "metal", "tree", "ship", "language", "planet", "theory", "number", "food", "dance", "flower",
)  # fmt: skip
#: parts of names that say nothing of what a tool does
NAME_WORDS = (
    "my", "agent", "tool", "helper", "run", "do", "use", "call", "fetch", "fact", "data", "api", "service", "simple",
    "quick", "new", "main", "v2", "v3", "number", "value", "text", "item", "thing", "page", "user", "server", "local",
    "basic", "smart", "fast", "easy", "read", "reader", "finder", "info", "information", "check", "ask", "answer",
    "query", "task", "job", "action", "method", "function", "handle", "process", "request", "object",
    "entry", "source", "base",
    *ADJECTIVES, *NOUNS,
)  # fmt: skip


def call_text(name: str, arguments: dict[str, Any]) -> str:
    """A call as the chat template writes it."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}</tool_call>"


def tools_text(system: str | None, tools: Sequence[Tool]) -> str:
    """The text of the system message that the chat template makes of a system text and tools."""
    lines = "".join(f"{tool.line()}\n" for tool in tools)
    return f"{'' if system is None else system}<tools>\n{lines}</tools>"


def _written(rng: Random, text: str) -> str:
    """Words in one of the styles in which names are written."""
    style = rng.random()
    if style < 0.75:
        return text.replace(" ", "_")
    parts = text.split(" ")
    if style < 0.93:
        return parts[0] + "".join(part.capitalize() for part in parts[1:])
    return "".join(part.capitalize() for part in parts) if style < 0.97 else text.replace(" ", "-")


def _half(split: Split, pair: tuple[Sequence[str], Sequence[str]]) -> Sequence[str]:
    return phrasings(split, *pair)


def _other_name(rng: Random, name: str) -> str:
    """A name that no list has, so that a model has to read it: invented, of other words, or these among others."""
    if rng.random() < 0.3:
        return " ".join(invented_name(rng).lower() for _ in range(rng.randint(1, 2)))
    added = rng.sample(NAME_WORDS, rng.randint(1, 2))
    if rng.random() < 0.45:
        return " ".join(added)
    parts = [*name.split(" "), *added]
    rng.shuffle(parts)
    return " ".join(parts[: rng.randint(2, 4)])


def family_tool(rng: Random, split: Split, family: Family) -> Tool:
    """A tool of a family in one of its wordings."""
    wording = WORDINGS[family]
    name = rng.choice(_half(split, wording.names))
    description = f"{rng.choice(wording.verbs)} {rng.choice(_half(split, wording.objects))}{rng.choice(wording.ends)}"
    if family == "calculator" and rng.random() < 0.1:
        sign = rng.choice(list(TWO_NUMBERS))
        verb = TWO_NUMBERS[sign][0].capitalize()
        kind = pick(rng, "number", "integer", "number")
        parameters = tuple(Parameter(each, kind) for each in rng.choice(PAIRS))
        return Tool(family, _written(rng, rng.choice(TWO_NUMBERS[sign])), parameters, f"{verb} two numbers.", sign)
    form = rng.random()
    if form < 0.55:
        name = _other_name(rng, name)
    elif form < 0.62:
        description = ""
    if description and rng.random() < 0.8:
        description += "."
    if description and rng.random() < 0.15:
        description += pick(rng, " Use it when asked.", " Always use this tool.", " Returns text.", " Fast.")
    parameter = rng.choice(_half(split, wording.parameters))
    if rng.random() < 0.45:
        parameter = _other_name(rng, parameter)
    chosen: tuple[Parameter, ...] = (Parameter(_written(rng, parameter)),)
    if family == "time":
        has_place = rng.random() < 0.4
        chosen = (Parameter(_written(rng, parameter), required=rng.random() < 0.5),) if has_place else ()
    elif rng.random() < 0.08:
        extra = pick(rng, "limit", "language", "format", "max_results", "units", "precision")
        chosen = (*chosen, Parameter(extra, pick(rng, "string", "integer"), required=False))
    return Tool(family, _written(rng, name), chosen, description)


def other_tool(rng: Random) -> Tool:
    """A tool that no question of ours needs."""
    if rng.random() < 0.25:
        parameters = tuple(Parameter(invented_name(rng).lower()) for _ in range(rng.randint(0, 3)))
        description = " ".join(invented_name(rng) for _ in range(rng.randint(0, 4)))
        return Tool(None, invented_name(rng).lower(), parameters, description)
    name, names, description = rng.choice(OTHERS)
    return Tool(None, _written(rng, name), tuple(Parameter(each) for each in names), description)


def toolbox(rng: Random, split: Split, families: Sequence[Family] | None = None) -> tuple[Tool, ...]:
    """Tools in any order; without `families`, some of them and now and then a tool of none."""
    if families is None:
        families = [
            family for family, share in zip(FAMILIES, (0.8, 0.75, 0.8, 0.25), strict=True) if rng.random() < share
        ]
    tools = [family_tool(rng, split, family) for family in families]
    tools += [other_tool(rng) for _ in range(rng.choices((0, 1, 2), (62, 28, 10))[0])]
    rng.shuffle(tools)
    by_name = {tool.name: tool for tool in tools}
    return tuple(by_name.values()) or (other_tool(rng),)


def system_text(rng: Random) -> str | None:
    """A system text of one to three sentences, or none."""
    return None if rng.random() < 0.4 else " ".join(rng.choices(SYSTEMS, k=rng.choices((1, 2, 3), (6, 3, 1))[0]))
