"""Numbers, dates and counted things as the active language writes them."""

import time

from webui import texts


def whole(number: float) -> str:
    """A number without decimals: 23,410."""
    return decimal(number, 0)


def decimal(number: float, digits: int, *, signed: bool = False) -> str:
    """A number with so many decimals, with `signed` also a plus: +1.5."""
    return localised(f"{number:{'+' if signed else ''}.{digits}f}")


def signed(number: float, digits: int = 0) -> str:
    """A difference, with its sign: +12."""
    return decimal(number, digits, signed=True)


def percent(share: float) -> str:
    """A share in percent without decimals: 50%."""
    return texts.PERCENT.format(number=whole(100 * share))


def rough_percent(share: float) -> str:
    """A share in percent with two digits: 1.2%."""
    return texts.PERCENT.format(number=localised(f"{100 * share:.2g}"))


def localised(number: str) -> str:
    """A number in Python's notation without an exponent, as the language writes it."""
    sign, digits = (number[0], number[1:]) if number[:1] in ("+", "-") else ("", number)
    integer, point, decimals = digits.partition(".")
    if len(integer) >= int(texts.NUMBERS["least_grouped"]):
        integer = f"{int(integer):,}".replace(",", texts.NUMBERS["group"])
    return f"{sign}{integer}{texts.NUMBERS['decimal'] if point else ''}{decimals}"


def counted(forms: texts.Plural, count: int, **others: str) -> str:
    """A text about a number of things; `others` fill in its further names."""
    is_one = str(count) in texts.NUMBERS["singular"].split()
    return forms["one" if is_one else "other"].format(count=whole(count), **others)


def num_votes(count: int) -> str:
    """A count of votes."""
    return counted(texts.NUM_VOTES, count)


def short_count(number: int) -> str:
    """A count with three digits and a unit: 5.25 M."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if number >= size:
            return f"{localised(f'{number / size:.3g}')} {unit}"
    return str(number)


def day(date: str) -> str:
    """A day in ISO notation as people write it: 3 Nov 2026."""
    parsed = time.strptime(date, "%Y-%m-%d")
    return texts.DAY.format(day=parsed.tm_mday, month=texts.MONTHS[parsed.tm_mon - 1], year=parsed.tm_year)


def listed(names: tuple[str, ...] | list[str]) -> str:
    """Names in a row: "a, b and c"."""
    if len(names) < 2:
        return "".join(names)
    return texts.LIST_END.format(others=texts.LIST_SEPARATOR.join(names[:-1]), last=names[-1])


def capitalised(text: str) -> str:
    """A text at the beginning of a line. Its other letters stay as they are: German nouns have capitals."""
    return text[:1].upper() + text[1:]
