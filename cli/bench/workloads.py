"""Workloads of benchmarks: prompts as token ids or texts, and their numbers of output tokens. Fixed seeds make every
run equal.

`sharegpt` and `alpaca` have the lengths of those data sets (log-normal, means as in the PagedAttention paper, answers
of ShareGPT at half their length) and random ids, so that prefix caches do not help and nothing has to be downloaded.
This module does not know the engine or a server.
"""

import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.errors import CliError

Tokens = list[int]

#: Ids below are special in most vocabularies.
FIRST_ID = 4
#: The named workloads draw ids below this, which every model of benchmarks/models.py has.
ID_BOUND = 8192
_SHORTEST = 4
_SYLLABLES = ("ba", "de", "ki", "lo", "mu", "na", "pe", "ri", "so", "tu", "ve", "wa")


@dataclass(frozen=True, slots=True)
class Work:
    """One prompt as token ids, and its number of output tokens."""

    ids: tuple[int, ...]
    out: int


@dataclass(frozen=True, slots=True)
class TextWork:
    """One prompt as text, and its number of output tokens; None: the server's default."""

    text: str
    out: int | None


@dataclass(frozen=True, slots=True)
class Lengths:
    """A log-normal distribution of lengths in tokens. `mean` is the mean before lengths are cut at `longest`."""

    mean: float
    sigma: float
    longest: int

    def draw(self, generator: random.Random) -> int:
        """A length in tokens, between _SHORTEST and `longest`."""
        drawn = generator.lognormvariate(math.log(self.mean) - self.sigma**2 / 2, self.sigma)
        return max(_SHORTEST, min(self.longest, round(drawn)))


@dataclass(frozen=True, slots=True)
class Recipe:
    """The default number of requests of a named workload, and the lengths of its prompts and answers."""

    num_requests: int
    prompt: Lengths
    answer: Lengths


RECIPES = {
    "sharegpt": Recipe(32, Lengths(161, 1.2, 512), Lengths(169, 0.9, 256)),
    "alpaca": Recipe(64, Lengths(19, 0.6, 128), Lengths(58, 1.0, 256)),
}
NAMES = (*RECIPES, "single")
_SEED = 7
_SINGLE_SEED = 5


def named(name: str, num_requests: int | None = None) -> list[Work]:
    """The workload of that name. With more requests than its default, the first ones stay the same.

    "single" is one prompt of 128 tokens with 128 output tokens.
    """
    if name == "single":
        generator = random.Random(_SINGLE_SEED)
        return [Work(tuple(_draw_ids(generator, 128)), 128)]
    recipe = RECIPES[name]
    generator = random.Random(f"{_SEED}-{name}")
    work = []
    for _ in range(num_requests or recipe.num_requests):
        ids = _draw_ids(generator, recipe.prompt.draw(generator))
        work.append(Work(tuple(ids), recipe.answer.draw(generator)))
    return work


def random_work(num_prompts: int, input_len: int, output_len: int, vocab_size: int, seed: int = 0) -> list[Work]:
    """Prompts of uniformly random token ids; no two share a prefix."""
    generator = random.Random(seed)
    return [Work(tuple(generator.choices(range(vocab_size), k=input_len)), output_len) for _ in range(num_prompts)]


def within_vocabulary(work: Sequence[Work], vocab_size: int) -> list[Work]:
    """Map ids to a smaller vocabulary; nothing changes for a vocabulary of ID_BOUND or more."""
    if all(max(item.ids) < vocab_size for item in work):
        return list(work)
    span = vocab_size - FIRST_ID
    return [Work(tuple(FIRST_ID + (token - FIRST_ID) % span for token in item.ids), item.out) for item in work]


def holds_token_ids(path: Path) -> bool:
    """True if the file is a list of {ids, out}, False if it holds texts."""
    if path.suffix != ".json":
        return False
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return True  # read_workload reports the error
    is_text = (
        isinstance(rows, list)
        and bool(rows)
        and isinstance(rows[0], str | dict)
        and (isinstance(rows[0], str) or "prompt" in rows[0])
    )
    return not is_text


def read_workload(path: Path) -> list[Work]:
    """Read a JSON list of {"ids": [token ids], "out": number of tokens}; raises CliError."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        work = [Work(tuple(int(token) for token in row["ids"]), int(row["out"])) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CliError(f"{path} is no workload ({error!r}); it must be a list of {{ids, out}}.") from None
    if not work or any(not item.ids or item.out < 1 or min(item.ids) < 0 for item in work):
        raise CliError(f"{path} has no work, an empty prompt, a negative id, or an out below 1.")
    return work


def read_texts(path: Path, output_len: int | None) -> list[TextWork]:
    """Read prompts: JSON lines or a JSON list of texts or {"prompt": text, "out": tokens}, or lines of text.

    `output_len` is used for prompts without `out`. Raises CliError.
    """
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CliError(f"{path} cannot be read: {error}") from None
    try:
        rows = _rows(content, path.suffix)
        work = [_text_work(row, output_len) for row in rows]
    except (ValueError, KeyError, TypeError) as error:
        raise CliError(f"{path} is no file of prompts ({error!r}); see --help.") from None
    if not work or any(not item.text for item in work):
        raise CliError(f"{path} has no prompt, or an empty one.")
    return work


def texts_like(name: str, num_requests: int) -> list[TextWork]:
    """Texts with as many words as the named workload has tokens; the server counts their tokens."""
    generator = random.Random(f"{_SEED}-{name}-words")
    return [TextWork(_words(generator, len(item.ids)), item.out) for item in named(name, num_requests)]


def random_texts(num_requests: int, num_words: int, output_len: int, seed: int = 0) -> list[TextWork]:
    """Prompts of `num_words` random words each."""
    generator = random.Random(seed)
    return [TextWork(_words(generator, num_words), output_len) for _ in range(num_requests)]


def _draw_ids(generator: random.Random, count: int) -> Tokens:
    return [generator.randrange(FIRST_ID, ID_BOUND) for _ in range(count)]


def _words(generator: random.Random, count: int) -> str:
    return " ".join("".join(generator.choices(_SYLLABLES, k=2)) for _ in range(count))


def _rows(content: str, suffix: str) -> list[Any]:
    if suffix == ".json":
        rows = json.loads(content)
        if not isinstance(rows, list):
            raise TypeError("not a list")
        return rows
    lines = [line for line in content.splitlines() if line.strip()]
    return [json.loads(line) for line in lines] if suffix == ".jsonl" else lines


def _text_work(row: Any, output_len: int | None) -> TextWork:
    if isinstance(row, str):
        return TextWork(row, output_len)
    prompt, out = row["prompt"], row.get("out", output_len)
    if not isinstance(prompt, str) or not (out is None or (isinstance(out, int) and out >= 1)):
        raise ValueError("a prompt must be text, and out a number above 0")
    return TextWork(prompt, out)
