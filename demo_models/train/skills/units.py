"""Conversion of units by a small table: whole amounts up to 12 of the larger unit."""

from __future__ import annotations

from random import Random

from demo_models.train.turns import Split, Turn, phrasings, pick

#: larger unit, its plural, smaller unit, how many of the smaller
UNITS = [
    ("kilometre", "kilometres", "metres", 1000), ("metre", "metres", "centimetres", 100),
    ("hour", "hours", "minutes", 60), ("minute", "minutes", "seconds", 60), ("kilogram", "kilograms", "grams", 1000),
    ("day", "days", "hours", 24), ("week", "weeks", "days", 7), ("year", "years", "months", 12),
    ("dozen", "dozen", "eggs", 12), ("centimetre", "centimetres", "millimetres", 10),
    ("litre", "litres", "millilitres", 1000), ("foot", "feet", "inches", 12), ("century", "centuries", "years", 100),
    ("decade", "decades", "years", 10), ("dollar", "dollars", "cents", 100),
]  # fmt: skip
ASK = [
    "How many {s} are in {n} {l}?", "How many {s} are there in {n} {l}?", "Convert {n} {l} to {s}.",
    "{n} {l} in {s}?", "What is {n} {l} in {s}?", "How many {s} is {n} {l}?", "Change {n} {l} into {s}.",
    "{n} {l} to {s}", "How many {s} make {n} {l}?",
]  # fmt: skip
ASK_TEST = [
    "Please convert {n} {l} to {s}.",
    "Can you tell me how many {s} are in {n} {l}?",
    "Convert {n} {l} into {s}.",
]
BACK = ["How many {l} are {m} {s}?", "Convert {m} {s} to {l}.", "What is {m} {s} in {l}?", "{m} {s} in {l}?"]
BACK_TEST = ["Please convert {m} {s} to {l}.", "Convert {m} {s} into {l}."]
SHORT = {
    "kilometres": "km", "metres": "m", "centimetres": "cm", "kilograms": "kg", "grams": "g", "minutes": "min",
    "millimetres": "mm",
}  # fmt: skip


def sample(rng: Random, split: Split) -> Turn:
    """Convert an amount to the smaller unit, or back."""
    one, many, small, factor = rng.choice(UNITS)
    n = (
        1
        if rng.random() < 0.3
        else rng.randint(2, 12 if factor in (10, 100, 1000) else 10 if factor in (60, 12, 7) else 5)
    )
    large, total = one if n == 1 else many, n * factor
    if rng.random() < 0.25 and one != "dozen":
        user = rng.choice(phrasings(split, BACK, BACK_TEST)).format(m=total, s=small, l=many)
        return Turn(user, f"{total} {small} are {n} {large}." if n > 1 else f"{total} {small} are one {large}.",
                    f"are {n if n > 1 else 'one'} {large}")  # fmt: skip
    shown_large, shown_small = large, small
    if rng.random() < 0.3:
        shown_large, shown_small = SHORT.get(many, large), SHORT.get(small, small)
    shown = pick(rng, "1", "a", "one") if n == 1 else str(n)
    if shown == "a":
        shown = "an" if shown_large == "hour" else "a"
    if shown_large == one + "s" and n == 1:
        shown = "1"
    user = rng.choice(phrasings(split, ASK, ASK_TEST)).format(n=shown, s=shown_small, l=shown_large)
    count = "One" if n == 1 else str(n)
    return Turn(user, f"{count} {large} {'is' if n == 1 else 'are'} {total} {small}.", f"{total} {small}")
