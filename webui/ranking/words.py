"""What the leaderboard page says of boards, flags, statements and plots. Plain words; markup only where it says so."""

from collections.abc import Mapping, Sequence
from html import escape

from webui import texts
from webui.number_formats import (
    capitalised,
    counted,
    day,
    listed,
    localised,
    num_votes,
    rough_percent,
    short_count,
    signed,
    whole,
)
from webui.sentences import fact
from wire.leaderboard import PositionBias, PropensityDiagnostics, Statement
from wire.model_cards import BoardCard
from wire.workers import ModelCard

USUAL_BOARD = "overall"  #: the controller's board of all rated votes


def board(name: str) -> str:
    """What a board is called. One without a name of its own is shown by the controller's name."""
    if name in texts.BOARDS:
        return texts.BOARDS[name]
    if name.startswith("cohort:"):
        return texts.COHORT_BOARD.format(cohort=name.removeprefix("cohort:"))
    language = texts.LANGUAGE_BOARDS.get(name.removeprefix("lang_")) if name.startswith("lang_") else None
    return language or name.replace("_", " ").capitalize()


def boards(names: Sequence[str]) -> list[tuple[str, str]]:
    """Title and name of each board: those of BOARDS in their order, then the others by title."""
    known = [name for name in texts.BOARDS if name in names]
    others = sorted((name for name in dict.fromkeys(names) if name not in texts.BOARDS), key=board)
    return [(board(name), name) for name in (*known, *others)]


def comparison_hint(first: str, second: str, votes: tuple[int, int]) -> str:
    """What a comparison shows."""
    return texts.COMPARISON_HINT.format(
        first=board(first), first_votes=num_votes(votes[0]), second=board(second), second_votes=num_votes(votes[1])
    )


def anchor(models: Sequence[str]) -> str:
    """Against what ratings and intervals are."""
    if len(models) == 1:
        return texts.ANCHOR_ONE.format(model=models[0])
    return texts.ANCHOR_MEAN.format(models=listed(list(models)))


def unrated(counts: Mapping[str, int], total: int | None) -> str:
    """How many votes the board leaves out, and why: "Not counted: 14 votes (answer stopped 9, too quick 5)"."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    reasons = texts.LIST_SEPARATOR.join(f"{unrated_flag(flag)} {whole(count)}" for flag, count in ordered)
    if total is None and len(ordered) == 1:
        total = ordered[0][1]
    if total is None:
        return texts.NOT_COUNTED.format(reasons=reasons)
    return texts.NOT_COUNTED_OF.format(votes=num_votes(total), reasons=reasons)


def unrated_flag(flag: str) -> str:
    """The words for a reason why votes are not rated."""
    return texts.UNRATED[flag][0] if flag in texts.UNRATED else flag.replace("_", " ")


def reason(flag: str) -> str:
    """Why votes with this flag are not rated, as a sentence."""
    return capitalised(texts.UNRATED_SENTENCE.format(reason=_clause(flag)))


def not_rated(flags: Sequence[str]) -> str:
    """What the voter reads of a vote that is not rated."""
    if not flags:
        return texts.NOT_RATED
    return texts.NOT_RATED_WHY.format(reasons=texts.CLAUSE_SEPARATOR.join(map(_clause, flags)))


def _clause(flag: str) -> str:
    return texts.UNRATED[flag][1] if flag in texts.UNRATED else flag.replace("_", " ")


def statement(said: Statement) -> str:
    """What the votes say of two models, as markup with the names in bold."""
    names = {"above": f"<b>{escape(said.above)}</b>", "below": f"<b>{escape(said.below)}</b>"}
    if not said.is_decided:
        if said.votes_needed is None:
            return texts.UNDECIDED.format(**names)
        # With two digits: it is an estimate.
        return counted(texts.VOTES_DECIDE, int(float(f"{said.votes_needed:.2g}")), **names)
    if said.lower is None or said.lower < 0.5:
        return texts.ABOVE.format(**names)
    return texts.ABOVE_BY.format(points=points(said.lower), **names)


def difference(said: Statement) -> str:
    """By how much the first model may be ahead; empty if that is unknown."""
    if said.lower is None or said.upper is None:
        return ""
    return texts.AHEAD_BY.format(model=said.above, lower=signed(said.lower), upper=signed(said.upper))


def points(value: float) -> str:
    """Rating points without decimals."""
    return counted(texts.POINTS, round(value))


def interval(lower: float | None, upper: float | None) -> str:
    """An interval in brackets, to be put behind a number; empty if it is unknown."""
    return "" if lower is None or upper is None else texts.INTERVAL.format(lower=signed(lower), upper=signed(upper))


def position_bias(bias: PositionBias) -> str:
    """What standing on side A is worth."""
    if bias.lower is not None and bias.upper is not None and bias.lower <= 0 <= bias.upper:
        return texts.POSITION_UNSURE.format(points=signed(bias.points), interval=interval(bias.lower, bias.upper))
    lower, upper = (bias.lower, bias.upper) if bias.points >= 0 else (_minus(bias.upper), _minus(bias.lower))
    template = texts.POSITION_WORTH["a" if bias.points >= 0 else "b"]
    return template.format(points=points(abs(bias.points)), interval=interval(lower, upper))


def _minus(value: float | None) -> float | None:
    return None if value is None else -value


def propensity(known: PropensityDiagnostics, num_counted: int) -> list[str]:
    """How uneven the drawing of pairs was, in sentences."""
    votes = num_votes(known.num_known)
    if known.smallest is None:
        sentences = [texts.PAIR_KNOWN.format(votes=votes)]
    else:
        sentences = [texts.PAIR_KNOWN_LEAST.format(votes=votes, least=rough_percent(known.smallest))]
    if known.effective_votes is not None:
        worth = whole(known.effective_votes)
        sentences.append(texts.PAIR_WORTH.format(votes=num_votes(num_counted), worth=worth))
    return sentences


def style_effect(feature: str, worth: float, lower: float | None, upper: float | None) -> str:
    """What one standard deviation more of a style feature is worth."""
    named = texts.STYLE_FEATURES.get(feature, feature.replace("_", " "))
    effect = texts.STYLE_EFFECT.format(feature=named, points=signed(worth), interval=interval(lower, upper))
    return capitalised(effect)


def ties(tie_points: float) -> str:
    """How often equal models tie by the Rao-Kupper model, whose range of ties is `tie_points` wide."""
    theta = 10 ** (tie_points / 400)
    return texts.TIES_OF_EQUALS.format(rate=rough_percent((theta - 1) / (theta + 1)))


def card_facts(card: BoardCard | None, served: ModelCard | None) -> tuple[str, ...]:
    """Who made a model, its size, context length, licence and date, where it runs, whether it is a base model and what
    a token takes: what is known of them."""
    facts = []
    if card is not None and card.provider:
        facts.append(card.provider)
    size = (card.num_parameters if card is not None else None) or (served.num_parameters if served is not None else 0)
    if size:
        facts.append(fact("parameters", short_count(size)))
    if served is not None:
        facts.append(fact("context", whole(served.context_length)))
    if card is not None and card.licence:
        facts.append(card.licence)
    if card is not None and card.released:
        facts.append(texts.RELEASED.format(day=known_day(card.released)))
    if card is not None and card.runs_on:
        facts.append(card.runs_on)
    elif served is not None and served.runs_on is not None:
        facts.append(texts.RUNS_ON[served.runs_on])
    if served is not None and served.chat != "template":
        facts.append(texts.CHAT_FORMS[served.chat])
    if card is not None and card.joules_per_token is not None:
        facts.append(fact("joules", _joules(card.joules_per_token)))
    return tuple(facts)


def _joules(energy: float) -> str:
    """With two digits: a measurement has no more."""
    return whole(energy) if energy >= 10 else localised(f"{energy:.2g}")


def known_day(date: str) -> str:
    """The day of a card as people write it. One that no calendar has, which an operator may have typed, stays as it
    is."""
    try:
        return day(date)
    except ValueError:
        return date


def part(shown: int, total: int) -> str:
    """That a picture shows the first models of the table only; empty if it shows all."""
    return "" if shown >= total else texts.FIRST_MODELS.format(shown=shown, total=total)


def day_sentence(date: str, votes: int) -> str:
    """The title of a day's bar."""
    return texts.DAY_OF_VOTES.format(day=day(date), votes=num_votes(votes))


def line_sentence(model: str, first: float, first_day: str, last: float, last_day: str) -> str:
    """The title of a model's line."""
    ratings = {"first": f"{first:.0f}", "last": f"{last:.0f}"}
    return texts.LINE_OF_MODEL.format(model=model, first_day=day(first_day), last_day=day(last_day), **ratings)


def history_sentence(models: Sequence[str], first_day: str, last_day: str) -> str:
    """The title of the history's picture."""
    names = texts.LIST_SEPARATOR.join(models)
    return texts.LINES.format(first_day=day(first_day), last_day=day(last_day), models=names)
