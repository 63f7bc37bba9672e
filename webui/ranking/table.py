"""The ranking itself as markup: one row for each contestant, with its place, card, rating, interval and votes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from webui import number_formats, plots, sentences, texts
from webui.ranking import words
from wire.leaderboard import LeaderboardRow, LeaderboardView
from wire.model_cards import BoardCard, CardState
from wire.workers import ModelCard


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of models besides their votes, by model: cards of the board, states, cards of the workers."""

    cards: Mapping[str, BoardCard] = field(default_factory=dict)
    states: Mapping[str, CardState] = field(default_factory=dict)
    served: Mapping[str, ModelCard] = field(default_factory=dict)

    @classmethod
    def of(cls, view: LeaderboardView, served: Mapping[str, ModelCard] | None) -> "Known":
        """The cards that came with the board, and those of the workers."""
        return cls(view.cards, view.states, served or {})


def ranking(rows: Sequence[LeaderboardRow], known: Known, *, shows_flip: bool) -> str:
    """The table. `shows_flip` adds to each row how many votes would change its place."""
    scale = plots.rating_scale(rows)
    heads = (
        ("rank", texts.COLUMN_RANK),
        ("model", texts.COLUMN_MODEL),
        ("rating", texts.COLUMN_RATING),
        ("interval", texts.COLUMN_INTERVAL),
        ("votes", texts.COLUMN_VOTES),
        ("rate", texts.COLUMN_WIN_RATE),
    )
    head = "".join(
        f'<th scope="col" role="columnheader" class="agon-col-{name}">{title}'
        f"{plots.axis(scale) if name == 'interval' else ''}</th>"
        for name, title in heads
    )
    body = "".join(_row(row, scale, known, shows_flip=shows_flip) for row in rows)
    return (
        f'<table class="agon-ranking" role="table"><thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{body}</tbody></table>'
    )


def waiting_models(rows: Sequence[LeaderboardRow], known: Known) -> str:
    """The registered models that have no row yet; empty if there are none."""
    shown = {row.model for row in rows}
    waiting = sorted((set(known.cards) | set(known.states)) - shown)
    if not waiting:
        return ""
    names = ", ".join(_waiting(model, known.cards.get(model)) for model in waiting)
    return f'<p class="agon-quiet">{texts.WAITING_MODELS} {names}</p>'


def _waiting(model: str, card: BoardCard | None) -> str:
    by = "" if card is None or not card.provider else f" ({escape(card.provider)})"
    return f"<b>{_linked(model, card)}</b>{by}"


def _row(row: LeaderboardRow, scale: plots.Scale, known: Known, *, shows_flip: bool) -> str:
    bounds = texts.NO_INTERVAL if row.lower is None or row.upper is None else f"{row.lower:.0f} \u2013 {row.upper:.0f}"
    rate = "\u2013" if row.win_rate is None else number_formats.percent(row.win_rate)
    flip = row.votes_to_flip if shows_flip else None
    flips = "" if flip is None else f"<small>{escape(sentences.votes_to_flip(flip))}</small>"
    rating = f"{row.rating:.0f}" if row.votes else "\u2013"
    cells = (
        ("rank", _place(row)),
        ("model", _model(row, known) + flips),
        ("rating", f"<b>{rating}</b><small>{bounds}</small>"),
        ("interval", plots.interval(row, scale) if row.votes else ""),
        (
            "votes",
            f"{number_formats.whole(row.votes)}<span> {number_formats.counted(texts.UNIT_VOTES, row.votes)}</span>",
        ),
        ("rate", f"{rate}<span> {texts.UNIT_WIN_RATE}</span>"),
    )
    tds = "".join(f'<td role="cell" class="agon-col-{name}">{content}</td>' for name, content in cells)
    return f'<tr role="row">{tds}</tr>'


def _place(row: LeaderboardRow) -> str:
    if row.lower is None:
        return f'<span title="{texts.NO_RANK}">\u2013</span>'
    if row.worst_rank is None or row.worst_rank <= row.rank:
        return f"{row.rank}"
    return f"{row.rank}\u2013{row.worst_rank}"


def _model(row: LeaderboardRow, known: Known) -> str:
    """The name with what is known of the model. The row of an older revision is named model@revision."""
    model, _, revision = row.model.partition("@")
    card = known.cards.get(row.model, known.cards.get(model))
    state = known.states.get(row.model, known.states.get(model))
    marks = [sentences.flag(name) for name in row.flags if name != "no_votes" or state != "submitted"]
    day = None if card is None else card.retired
    if state == "retired" or day:
        marks.insert(0, texts.RETIRED_ON.format(day=words.known_day(day)) if day else texts.RETIRED)
    elif state == "submitted":
        marks.insert(0, texts.SUBMITTED)
    older = f'<i class="agon-revision">@{escape(revision)}</i>' if revision else ""
    flags = "".join(f'<span class="agon-flag">{escape(mark)}</span>' for mark in marks)
    known_facts = words.card_facts(card, known.served.get(row.model))
    facts = " \u00b7 ".join(f"<span>{escape(fact)}</span>" for fact in known_facts)
    told = f'<small class="agon-card-facts">{facts}</small>' if facts else ""
    return f"<strong>{_linked(model, card)}</strong>{older}{flags}{told}"


def _linked(model: str, card: BoardCard | None) -> str:
    if card is None or card.link is None:
        return escape(model)
    return f'<a href="{escape(str(card.link))}" rel="noopener noreferrer" target="_blank">{escape(model)}</a>'
