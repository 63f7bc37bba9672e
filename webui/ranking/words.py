"""What the leaderboard page says of boards, flags, statements and plots. Plain words; no markup."""

import time
from collections.abc import Mapping, Sequence
from typing import Final

from webui.texts import FACTS, num_votes, short_count
from wire.leaderboard import FitModel, PositionBias, PropensityDiagnostics, Statement, Weighting
from wire.model_cards import BoardCard
from wire.workers import ModelCard

LEAD: Final = (
    "Ratings come from votes alone. The bar is the 95 % interval of a rating; a rank is a range of all the places that "
    "the votes leave open."
)

#: The controller's boards by name, in the order of the choice. A board that is not here is shown by its name.
BOARDS: Final[Mapping[str, str]] = {
    "overall": "All rated votes",
    "decisive": "Without ties",
    "multi_turn": "Longer conversations",
    "named": "Side by side",
    "code": "Code",
    "maths": "Mathematics",
    "creative": "Creative writing",
    "short_prompt": "Short questions",
    "long_prompt": "Long questions",
    "short_answers": "Short answers",
    "long_answers": "Long answers",
    "english": "English",
    "non_english": "Other languages than English",
}
_LANGUAGES: Final = {
    "ar": "Arabic",
    "cs": "Czech",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "fa": "Persian",
    "fi": "Finnish",
    "fr": "French",
    "he": "Hebrew",
    "hi": "Hindi",
    "hu": "Hungarian",
    "id": "Indonesian",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "nl": "Dutch",
    "no": "Norwegian",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sv": "Swedish",
    "th": "Thai",
    "tr": "Turkish",
    "uk": "Ukrainian",
    "vi": "Vietnamese",
    "zh": "Chinese",
}
METHOD: Final = "How ratings are computed"
FIT: Final = "Ties"
FITS: Final[Mapping[FitModel, str]] = {
    "bradley_terry": "A tie is half a win for each",
    "rao_kupper": "Ties have a range of their own (Rao-Kupper)",
}
WEIGHTING: Final = "Weights"
WEIGHTINGS: Final[Mapping[Weighting, str]] = {
    "votes": "Every vote counts the same",
    "propensity": "Every pair counts as if drawn evenly",
    "voters": "Voters who contradict the others count less",
}

OTHER_METHOD: Final = "This arena does not compute ratings that way; these are the usual ones."

VERSUS: Final = "Compare with"
NO_VERSUS: Final = ("No other board", "")
COMPARISON_TITLE: Final = "Two boards side by side"
COMPARED_MODEL: Final = "Model"
COMPARED_DIFFERENCE: Final = "Difference"

CSV: Final = "CSV"
UNRATED_WHY: Final = "why"
UNRATED_TWICE: Final = "A vote with two reasons stands in both counts. Every vote stays in the log."
#: For each flag of a vote: the words of the count, and the reason as a clause.
UNRATED: Final[Mapping[str, tuple[str, str]]] = {
    "named": ("models were chosen", "the models were chosen, so their names were known"),
    "identity_revealed": ("name given away", "an answer, or the question, told which model it is"),
    "stopped": ("answer stopped", "an answer was stopped before its end"),
    "too_quick": ("too quick", "the vote came sooner than anybody can read the answers"),
    "same_model": ("same model twice", "both answers came from the same model"),
    "anomalous_voter": (
        "voter contradicts all others",
        "the votes of one voter contradict those of all others, beyond what chance explains",
    ),
    "anomalous_cohort": ("group votes as one", "a group votes as one, and unlike everybody else"),
    "voter_cap": ("voter's limit", "of one voter only so many votes a day count"),
    "address_cap": ("network's limit", "from one network only so many votes a day count"),
    "prompt_cap": ("question's limit", "on one and the same question only so many votes count"),
    "probation": ("new voter", "the first votes of a new voter count once there are enough of them"),
    "withdrawn": ("withdrawn", "the operator of this arena has withdrawn them"),
}
NOT_RATED: Final = "This vote is recorded but not rated"
STOPPED: Final = "An answer was stopped, so a vote now is recorded but not rated."
REGENERATE: Final = "Regenerate for whole answers."

RETIRED: Final = "retired"
SUBMITTED: Final = "registered, no votes yet"
WAITING_MODELS: Final = "Registered, without votes yet:"

STATEMENTS_TITLE: Final = "What the votes decide"
STATEMENTS_HINT: Final = (
    "Of neighbours on the board. These hold at any time: however often one looks, the chance that any of them is wrong "
    "is 5 % at most."
)
DECIDED: Final = "decided"
OPEN: Final = "open"

HISTORY_TITLE: Final = "Ratings over time"
HISTORY_HINT: Final = "At the end of each day, with 95 % intervals. Below: votes of the day."

MORE_TITLE: Final = "What else the votes tell"
POSITION: Final = "Standing first"
TIES: Final = "Ties"
DRAWING: Final = "How pairs were drawn"
STYLE_EFFECTS: Final = "Style"
STYLE_EFFECTS_HINT: Final = "What one standard deviation more is worth:"
STYLE_FEATURES: Final = {
    "tokens": "a longer answer",
    "headers": "more headings",
    "lists": "more lists",
    "bold": "more bold text",
}


def board(name: str) -> str:
    """What a board is called."""
    if name in BOARDS:
        return BOARDS[name]
    if name.startswith("cohort:"):
        return f"Voters of {name.removeprefix('cohort:')}"
    language = _LANGUAGES.get(name.removeprefix("lang_")) if name.startswith("lang_") else None
    return language or name.replace("_", " ").capitalize()


def boards(names: Sequence[str]) -> list[tuple[str, str]]:
    """Title and name of each board: those of BOARDS in their order, then the others by title."""
    known = [name for name in BOARDS if name in names]
    others = sorted((name for name in dict.fromkeys(names) if name not in BOARDS), key=board)
    return [(board(name), name) for name in (*known, *others)]


def comparison_hint(first: str, second: str, votes: tuple[int, int]) -> str:
    """What a comparison shows."""
    sides = f"{board(first)} ({num_votes(votes[0])}) and {board(second)} ({num_votes(votes[1])})"
    return f"{sides}, on one scale. In bold: a difference that is certain at 95 %."


def anchor(models: Sequence[str]) -> str:
    """Against what ratings and intervals are."""
    if len(models) == 1:
        return f"{models[0]} is held at 1000; ratings and intervals are against it."
    names = ", ".join(models[:-1]) + f" and {models[-1]}"
    return f"The mean of {names} is held at 1000; ratings and intervals are against it."


def unrated(counts: Mapping[str, int], total: int | None) -> str:
    """How many votes the board leaves out, and why: "Not counted: 14 votes (answer stopped 9, too quick 5)"."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    parts = [f"{unrated_flag(flag)} {count:,}" for flag, count in ordered]
    if total is None and len(ordered) == 1:
        total = ordered[0][1]
    return (
        f"Not counted: {', '.join(parts)}" if total is None else f"Not counted: {num_votes(total)} ({', '.join(parts)})"
    )


def unrated_flag(flag: str) -> str:
    """The words for a reason why votes are not rated."""
    return UNRATED[flag][0] if flag in UNRATED else flag.replace("_", " ")


def reason(flag: str) -> str:
    """Why votes with this flag are not rated, as a sentence."""
    return f"{_clause(flag).capitalize()}."


def not_rated(flags: Sequence[str]) -> str:
    """What the voter reads of a vote that is not rated."""
    return f"{NOT_RATED}{': ' if flags else ''}{'; '.join(map(_clause, flags))}."


def _clause(flag: str) -> str:
    return UNRATED[flag][1] if flag in UNRATED else flag.replace("_", " ")


def statement_parts(said: Statement) -> tuple[str, str, str]:
    """The words before the first name, between both, and after the second."""
    if said.is_decided:
        least = "" if said.lower is None or said.lower < 0.5 else f" (at least {points(said.lower)})"
        return "", " is above ", least
    if said.votes_needed is None:
        return "not yet decided between ", " and ", ""
    return f"about {votes_needed(said.votes_needed)} decide between ", " and ", ""


def votes_needed(count: int) -> str:
    """A count of votes to come, with two digits: it is an estimate."""
    rounded = int(float(f"{count:.2g}"))
    return "1 more vote" if rounded == 1 else f"{rounded:,} more votes"


def difference(said: Statement) -> str:
    """By how much the first model may be ahead; empty if that is unknown."""
    if said.lower is None or said.upper is None:
        return ""
    return f"{said.above} is ahead by {said.lower:+.0f} to {said.upper:+.0f} points"


def points(value: float) -> str:
    """Rating points without decimals."""
    rounded = round(value)
    return "1 point" if rounded == 1 else f"{rounded:,} points"


def interval(lower: float | None, upper: float | None) -> str:
    """An interval in brackets with a blank before it; empty if it is unknown."""
    return "" if lower is None or upper is None else f" (95 % interval {lower:+.0f} to {upper:+.0f})"


def position_bias(bias: PositionBias) -> str:
    """What standing on side A is worth."""
    if bias.lower is not None and bias.upper is not None and bias.lower <= 0 <= bias.upper:
        return f"No effect of the side is certain: {bias.points:+.0f} points for A{interval(bias.lower, bias.upper)}."
    sides = "A instead of B" if bias.points >= 0 else "B instead of A"
    lower, upper = (bias.lower, bias.upper) if bias.points >= 0 else (_minus(bias.upper), _minus(bias.lower))
    return f"Standing on side {sides} is worth {points(abs(bias.points))}{interval(lower, upper)}."


def _minus(value: float | None) -> float | None:
    return None if value is None else -value


def propensity(known: PropensityDiagnostics, num_counted: int) -> str:
    """How uneven the drawing of pairs was."""
    sentences = [f"Of {num_votes(known.num_known)} the chance of the pair is known"]
    if known.smallest is not None:
        sentences[0] += f", {percent(known.smallest)} at least"
    if known.effective_votes is not None:
        counted = num_votes(num_counted)
        sentences.append(f"Weighted as if drawn evenly, {counted} are worth {known.effective_votes:,.0f}")
    return ". ".join(sentences) + "."


def percent(share: float) -> str:
    """A share with two digits."""
    return f"{100 * share:.2g} %"


def style_effect(feature: str, worth: float, lower: float | None, upper: float | None) -> str:
    """What one standard deviation more of a style feature is worth."""
    named = STYLE_FEATURES.get(feature, feature.replace("_", " "))
    return f"{named.capitalize()}: {worth:+.0f} points{interval(lower, upper)}"


def ties(tie_points: float) -> str:
    """How often equal models tie by the Rao-Kupper model, whose range of ties is `tie_points` wide."""
    theta = 10 ** (tie_points / 400)
    return f"Equal models tie in {percent((theta - 1) / (theta + 1))} of their battles."


def card_facts(card: BoardCard | None, served: ModelCard | None) -> tuple[str, ...]:
    """Who made a model, its size, licence, date, and context length: what is known of them."""
    facts = []
    if card is not None and card.provider:
        facts.append(card.provider)
    size = (card.num_parameters if card is not None else None) or (served.num_parameters if served is not None else 0)
    if size:
        facts.append(f"{short_count(size)} {FACTS['parameters']}")
    if served is not None:
        facts.append(f"{served.context_length:,} {FACTS['context']}")
    if card is not None and card.licence:
        facts.append(card.licence)
    if card is not None and card.released:
        facts.append(f"released {card.released}")
    return tuple(facts)


def part(shown: int, total: int) -> str:
    """That a picture shows the first models of the table only; empty if it shows all."""
    return "" if shown >= total else f" The first {shown} of {total} models: search to see others."


def day(date: str) -> str:
    """A day as people write it: 3 Nov 2026."""
    return time.strftime("%d %b %Y", time.strptime(date, "%Y-%m-%d")).lstrip("0")


def day_sentence(date: str, votes: int) -> str:
    """The title of a day's bar."""
    return f"{day(date)}: {num_votes(votes)}"


def line_sentence(model: str, first: float, first_day: str, last: float, last_day: str) -> str:
    """The title of a model's line."""
    return f"{model}: {first:.0f} on {day(first_day)}, {last:.0f} on {day(last_day)}"


def history_sentence(models: Sequence[str], first_day: str, last_day: str) -> str:
    """The title of the history's picture."""
    return f"Ratings from {day(first_day)} to {day(last_day)}: {', '.join(models)}"
