"""Sums and differences below 100, the multiplication table to 12 and its divisions.

Operand pairs of sums and differences are held out in every phrasing, except pairs up to 10, which are all trained. The
multiplication table is finite: every product is trained and only phrasings are held out. Every answer ends with the
result.
"""

from __future__ import annotations

from random import Random

from demo_models.train.turns import Split, Turn, phrasings, pick, split_of

#: sums and differences of numbers up to this are never held out
SMALL = 10
NUMBER_WORDS = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
]  # fmt: skip

SIGNED = [
    "What is {a} {s} {b}?", "{a}{s}{b}", "{a} {s} {b}", "{a} {s} {b} = ?", "{a}{s}{b}=", "{a} {s} {b} =",
    "Calculate {a} {s} {b}.", "What's {a} {s} {b}?", "Compute {a} {s} {b}.", "Can you work out {a} {s} {b}?",
    "How much is {a} {s} {b}?", "Please solve {a} {s} {b}.", "Tell me {a} {s} {b}.", "what does {a}{s}{b} make?",
    "solve {a}{s}{b}", "What is {a}{s}{b}?", "Do you know what {a} {s} {b} is?", "I need {a} {s} {b}.",
    "Can you tell me what {a} {s} {b} is?", "Quick: {a} {s} {b}", "and {a} {s} {b}?", "What about {a} {s} {b}?",
]  # fmt: skip
SPOKEN_SUM = [
    "What is {a} plus {b}?", "Calculate {a} plus {b}.", "Add {a} and {b}.", "What is the sum of {a} and {b}?",
    "How much is {a} plus {b}?", "{a} plus {b}", "Add {b} to {a}.", "Please add {a} and {b} for me.",
    "What do you get when you add {a} and {b}?", "what's {a} plus {b}?", "What is {a} and {b} together?",
    "If I have {a} coins and get {b} more, how many coins do I have?",
    "There are {a} birds in a tree and {b} more arrive. How many birds are there?",
    "I had {a} apples and bought {b} more. How many apples do I have now?",
]  # fmt: skip
SPOKEN_DIFFERENCE = [
    "What is {a} minus {b}?", "Calculate {a} minus {b}.", "Subtract {b} from {a}.", "{a} minus {b}",
    "How much is {a} minus {b}?", "Take {b} away from {a}.", "What is the difference between {a} and {b}?",
    "what's {a} minus {b}?", "What is left when you take {b} from {a}?", "Please subtract {b} from {a}.",
    "If I have {a} coins and lose {b}, how many coins are left?",
    "There were {a} birds in a tree and {b} flew away. How many birds are left?",
]  # fmt: skip
SPOKEN_PRODUCT = [
    "What is {a} times {b}?", "{a} times {b}", "Multiply {a} by {b}.", "Calculate {a} times {b}.",
    "How much is {a} times {b}?", "What is the product of {a} and {b}?", "Multiply {a} and {b}.",
    "what's {a} times {b}?", "What is {a} multiplied by {b}?",
]  # fmt: skip
SPOKEN_QUOTIENT = [
    "What is {a} divided by {b}?", "Divide {a} by {b}.", "{a} divided by {b}", "Calculate {a} divided by {b}.",
    "How much is {a} divided by {b}?", "what's {a} divided by {b}?",
]  # fmt: skip
TABLE_TEST_SIGNED = ["Could you calculate {a} {s} {b}?", "How much does {a} {s} {b} make?", "Give me {a} {s} {b}."]
TABLE_TEST_PRODUCT = ["Please multiply {a} by {b}.", "Can you tell me what {a} times {b} is?", *TABLE_TEST_SIGNED]
TABLE_TEST_QUOTIENT = ["Please divide {a} by {b}.", "Can you tell me what {a} divided by {b} is?", *TABLE_TEST_SIGNED]


def _operands(rng: Random) -> tuple[int, int]:
    """Two numbers below 100. Small ones are frequent, because visitors often type them first."""
    high = rng.choice((10, 20, 99, 99, 99, 99))
    return rng.randint(0, high), rng.randint(0, high if rng.random() < 0.8 else 10)


def sum_key(a: int, b: int) -> str:
    """Names the problem a + b, equal for b + a."""
    return f"sum:{min(a, b)},{max(a, b)}"


def difference_key(a: int, b: int) -> str:
    """Names the problem a - b."""
    return f"difference:{a},{b}"


def pair_split(key: str, a: int, b: int) -> Split:
    """The split of a problem; pairs up to SMALL are always trained."""
    return split_of(key) if max(a, b) > SMALL else "train"


def _written(rng: Random, number: int) -> str:
    return NUMBER_WORDS[number] if number <= 20 and rng.random() < 0.12 else str(number)


def _answer(rng: Random, left: str, result: int) -> str:
    return pick(rng, f"{left} = {result}.", f"{left} = {result}.", f"{left} = {result}.", f"That is {left} = {result}.")


def addition(rng: Random, split: Split) -> Turn:
    """Ask for a sum."""
    while True:
        a, b = _operands(rng)
        if pair_split(sum_key(a, b), a, b) == split:
            break
    if rng.random() < 0.55:
        user = rng.choice(SIGNED).format(a=a, b=b, s="+")
    else:
        phrase = rng.choice(SPOKEN_SUM)
        x, y = (str(a), str(b)) if "have" in phrase else (_written(rng, a), _written(rng, b))
        user = phrase.format(a=x, b=y)
    return Turn(user, _answer(rng, f"{a} + {b}", a + b), str(a + b), match="last_number")


def subtraction(rng: Random, split: Split) -> Turn:
    """Ask for a difference, negative ones included."""
    while True:
        a, b = _operands(rng)
        if a < b and rng.random() < 0.6:
            a, b = b, a
        if pair_split(difference_key(a, b), a, b) == split:
            break
    if rng.random() < 0.55 or a < b:
        user = rng.choice(SIGNED).format(a=a, b=b, s="-")
    else:
        user = rng.choice(SPOKEN_DIFFERENCE).format(a=_written(rng, a), b=_written(rng, b))
    return Turn(user, _answer(rng, f"{a} - {b}", a - b), str(a - b), match="last_number")


def multiplication(rng: Random, split: Split) -> Turn:
    """Ask for a product of the table to 12."""
    a, b = rng.randint(0, 12), rng.randint(0, 12)
    if rng.random() < 0.5:
        sign = rng.choice("*x*")
        user = rng.choice(phrasings(split, SIGNED, TABLE_TEST_SIGNED)).format(a=a, b=b, s=sign)
    else:
        x, y = _written(rng, a), _written(rng, b)
        user = rng.choice(phrasings(split, SPOKEN_PRODUCT, TABLE_TEST_PRODUCT)).format(a=x, b=y, s="*")
    return Turn(user, _answer(rng, f"{a} x {b}", a * b), str(a * b), match="last_number")


def division(rng: Random, split: Split) -> Turn:
    """Ask for a quotient of the table to 12."""
    b, result = rng.randint(1, 12), rng.randint(0, 12)
    a = b * result
    if rng.random() < 0.5:
        user = rng.choice(phrasings(split, SIGNED, TABLE_TEST_SIGNED)).format(a=a, b=b, s="/")
    else:
        user = rng.choice(phrasings(split, SPOKEN_QUOTIENT, TABLE_TEST_QUOTIENT)).format(a=a, b=b, s="/")
    return Turn(user, _answer(rng, f"{a} / {b}", result), str(result), match="last_number")


def sample(rng: Random, split: Split) -> Turn:
    """A turn of any kind of arithmetic."""
    kind = rng.choices((addition, subtraction, multiplication, division), (38, 42, 15, 5))[0]
    return kind(rng, split)
