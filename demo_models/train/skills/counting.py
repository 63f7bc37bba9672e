"""Counting up and down, counting letters of short words, even and odd numbers."""

from __future__ import annotations

from random import Random

from demo_models.train.skills.words import WORDS
from demo_models.train.turns import Split, Turn, phrasings, pick

UP = [
    "Count to {n}.", "Count up to {n}.", "Can you count to {n}?", "Please count to {n}.", "count to {n}",
    "Count from 1 to {n}.", "Count till {n}.",
]  # fmt: skip
UP_TEST = ["Could you count to {n}?", "Count up from 1 to {n}."]
DOWN = ["Count down from {n}.", "Count backwards from {n}.", "Do a countdown from {n}.", "countdown from {n}"]
DOWN_TEST = ["Please count down from {n}.", "Can you count down from {n}?"]
LETTERS = [
    "How many letters are in {w}?", "How many letters does {w} have?", "How many letters are in the word {w}?",
    "Count the letters in {w}.", "letters in {w}?", "How many letters has the word {w}?",
]  # fmt: skip
LETTERS_TEST = ["Count the letters of the word {w}.", "How many letters does the word {w} have?"]
PARITY = ["Is {n} even or odd?", "Is {n} an even number?", "Is {n} odd?", "Is {n} odd or even?", "Even or odd: {n}?"]
PARITY_TEST = ["Tell me if {n} is even or odd.", "Is {n} an odd number?"]


def sample(rng: Random, split: Split) -> Turn:
    """A turn of any kind of counting."""
    kind = rng.choices(("up", "down", "letters", "parity", "range"), (35, 15, 25, 12, 13))[0]
    match kind:
        case "up":
            n = rng.randint(2, 20)
            numbers = ", ".join(map(str, range(1, n + 1)))
            return Turn(rng.choice(phrasings(split, UP, UP_TEST)).format(n=n), f"{numbers}.", numbers)
        case "down":
            n = rng.randint(2, 12)
            numbers = ", ".join(map(str, range(n, 0, -1)))
            return Turn(rng.choice(phrasings(split, DOWN, DOWN_TEST)).format(n=n), f"{numbers}.", numbers)
        case "letters":
            word = rng.choice(WORDS)
            user = rng.choice(phrasings(split, LETTERS, LETTERS_TEST)).format(w=word)
            return Turn(user, f"{word.capitalize()} has {len(word)} letters.", f"has {len(word)} letters", "case")
        case "parity":
            n = rng.randrange(100)
            found = "odd" if n % 2 else "even"
            return Turn(
                rng.choice(phrasings(split, PARITY, PARITY_TEST)).format(n=n), f"{n} is {found}.", f"is {found}"
            )
        case _:
            low = rng.randint(1, 90)
            high = low + rng.randint(2, 9)
            user = rng.choice(
                phrasings(split, ["Count from {a} to {b}.", "count from {a} to {b}"], ["Please count from {a} to {b}."])
            )
            numbers = ", ".join(map(str, range(low, high + 1)))
            return Turn(user.format(a=low, b=high), pick(rng, f"{numbers}.", f"{numbers}."), numbers)
