"""The parts of the leaderboard page around its table, as markup: counts, statements, and what else the votes tell.

Each is a pure function from the board's view; one without anything to show is the empty string.
"""

from collections.abc import Collection, Sequence
from html import escape

from webui import number_formats, sentences, texts
from webui.client import BoardQuery
from webui.ranking import words
from wire.leaderboard import CohortComparison, CohortView, LeaderboardView, Statement

RESTORED_SHOWN_S = 7 * 86_400  #: for how long the page says that votes were restored
SHOWN_STATEMENTS = 8  #: further ones are folded


def summary(view: LeaderboardView, asked: BoardQuery, csv: str) -> str:
    """How many votes count and which do not, and against what the ratings are. `asked` is what the controller was
    asked for, `csv` the link of the table."""
    lines = [f'<p class="agon-live"><span></span>{number_formats.num_votes(view.num_votes)}{csv}</p>']
    if view.restored_at is not None and view.updated_at - view.restored_at < RESTORED_SHOWN_S:
        restored = escape(sentences.votes_restored(view.num_restored, view.restored_at))
        lines.append(f'<p class="agon-quiet">{restored}</p>')
    if (view.fit, view.weighting) != (asked.fit, asked.weighting):
        lines.append(f'<p class="agon-quiet">{texts.OTHER_METHOD}</p>')
    if view.anchor:
        lines.append(f'<p class="agon-quiet">{escape(words.anchor(view.anchor))}</p>')
    return "".join((*lines, _unrated(view)))


def _unrated(view: LeaderboardView) -> str:
    counts = {flag: count for flag, count in view.unrated.items() if count}
    if not counts:
        return ""
    reasons = "".join(
        f"<div><dt>{escape(number_formats.capitalised(words.unrated_flag(flag)))}</dt><dd>{escape(words.reason(flag))}</dd></div>"
        for flag, _ in sorted(counts.items(), key=lambda item: -item[1])
    )
    twice = f"<p>{texts.UNRATED_TWICE}</p>" if len(counts) > 1 else ""
    return (
        f'<details class="agon-why" id="why-unrated"><summary>{escape(words.unrated(counts, view.num_unrated))} '
        f"<u>{texts.UNRATED_WHY}</u></summary><dl>{reasons}</dl>{twice}</details>"
    )


def statements(view: LeaderboardView, shown: Collection[str], csv: str) -> str:
    """What the votes say of neighbours, those about a model in `shown`. `csv` is the link of all of them."""
    said = [one for one in view.statements if one.above in shown or one.below in shown]
    if not said:
        return ""
    flips = {row.model: row.votes_to_flip for row in view.rows}
    first, rest = said[:SHOWN_STATEMENTS], said[SHOWN_STATEMENTS:]
    folded = ""
    if rest:
        more_of_them = texts.MORE_STATEMENTS.format(count=len(rest))
        folded = (
            f'<details class="agon-why" id="more-statements"><summary><u>{more_of_them}</u></summary>'
            f"{_statements(rest, flips)}</details>"
        )
    return (
        f'<section class="agon-part"><h2>{texts.STATEMENTS_TITLE}</h2><p class="agon-hint">{texts.STATEMENTS_HINT}{csv}'
        f"</p>{_statements(first, flips)}{folded}</section>"
    )


def _statements(said: Sequence[Statement], flips: dict[str, int | None]) -> str:
    items = (_statement(one, flips.get(one.above) if one.is_decided else None) for one in said)
    return f'<ul class="agon-statements">{"".join(items)}</ul>'


def _statement(said: Statement, flip: int | None) -> str:
    kind = "decided" if said.is_decided else "open"
    small = "" if flip is None else f"<small>{escape(sentences.votes_to_flip(flip))}</small>"
    title = f' title="{escape(words.difference(said))}"' if words.difference(said) else ""
    return (
        f'<li class="agon-{kind}"{title}>{_mark(is_decided=said.is_decided)}<span>{words.statement(said)}{small}</span>'
        "</li>"
    )


def _mark(*, is_decided: bool) -> str:
    tick = '<circle cx="8" cy="8" r="7.5"/><path d="M4.5 8.3l2.4 2.4 4.6-5" fill="none" stroke-width="1.8"/>'
    ring = '<circle cx="8" cy="8" r="6.75" fill="none" stroke-width="1.5"/>'
    title = texts.DECIDED if is_decided else texts.OPEN
    return (
        f'<svg viewBox="0 0 16 16" width="16" height="16" role="img"><title>{title}</title>'
        f"{tick if is_decided else ring}</svg>"
    )


def comparison(view: CohortView | None, shown: Collection[str]) -> str:
    """The ratings of two boards and their differences, of the models in `shown` that both have."""
    rows = [] if view is None else [row for row in view.rows if row.model in shown and row.difference is not None]
    if view is None or not rows:
        return ""
    heads = (texts.COLUMN_MODEL, words.board(view.first), words.board(view.second), texts.COLUMN_DIFFERENCE)
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    body = "".join(_compared(row) for row in rows)
    hint = escape(words.comparison_hint(view.first, view.second, view.num_votes))
    return (
        f'<section class="agon-part" id="comparison"><h2>{texts.COMPARISON_TITLE}</h2><p class="agon-hint">{hint}</p>'
        f'<table class="agon-compared"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></section>'
    )


def _compared(row: CohortComparison) -> str:
    first, second = ("\u2013" if rating is None else f"{rating:.0f}" for rating in (row.first, row.second))
    assert row.difference is not None  # `comparison` shows no others
    difference = number_formats.signed(row.difference)
    if row.lower is not None and row.upper is not None:
        bounds = texts.RANGE.format(lower=number_formats.signed(row.lower), upper=number_formats.signed(row.upper))
        if row.lower > 0 or row.upper < 0:
            difference = f"<b>{difference}</b>"
        difference += f" <small>{bounds}</small>"
    return f'<tr><th scope="row">{escape(row.model)}</th><td>{first}</td><td>{second}</td><td>{difference}</td></tr>'


def more(view: LeaderboardView) -> str:
    """Position bias, effects of style, ties and how pairs were drawn."""
    entries: list[tuple[str, str]] = []
    if view.position_bias is not None:
        entries.append((texts.POSITION, escape(words.position_bias(view.position_bias))))
    if view.coefficients:
        effects = "".join(
            f"<li>{escape(words.style_effect(effect.feature, effect.points, effect.lower, effect.upper))}</li>"
            for effect in view.coefficients
        )
        entries.append((texts.STYLE_EFFECTS, f"{texts.STYLE_EFFECTS_HINT}<ul>{effects}</ul>"))
    if view.tie_points is not None:
        entries.append((texts.TIES, escape(words.ties(view.tie_points))))
    if view.propensity is not None and view.propensity.num_known:
        entries.append((texts.DRAWING, escape(sentences.in_a_row(*words.propensity(view.propensity, view.num_votes)))))
    if not entries:
        return ""
    listed = "".join(f"<div><dt>{name}</dt><dd>{text}</dd></div>" for name, text in entries)
    return f'<section class="agon-figure"><h2>{texts.MORE_TITLE}</h2><dl class="agon-facts">{listed}</dl></section>'
