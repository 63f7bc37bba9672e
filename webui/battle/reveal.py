"""The names, ratings and cards of both models, shown after the vote."""

from html import escape

from webui import texts
from webui.battle.session import Session, Standing
from webui.ranking import words
from wire.battles import SIDES, Side


def reveal(session: Session) -> str:
    """Both models' plates with the verdict between them, as markup; nothing before the vote."""
    if session.outcome is None or session.names is None:
        return ""
    plates = [_plate(session, side) for side in SIDES]
    verdict = escape(texts.VOTED[session.outcome])
    unrated = "" if session.is_rated else f'<p class="agon-unrated">{escape(words.not_rated(session.flags))}</p>'
    return (
        f'<section class="agon-reveal">{plates[0]}<p class="agon-verdict">{verdict}</p>{plates[1]}</section>{unrated}'
    )


def spoken(session: Session) -> str:
    """The same for screen readers; nothing before the vote."""
    if session.outcome is None or session.names is None:
        return ""
    named = (texts.revealed(side, session.name(side) or "") for side in SIDES)
    return " ".join((f"{texts.VOTED[session.outcome]}.", *named))


def _plate(session: Session, side: Side) -> str:
    chosen = " agon-chosen" if session.outcome == side else ""
    return (
        f'<div class="agon-plate agon-side-{side}{chosen}"><span class="agon-chip">{texts.SIDE_NAME[side]}</span>'
        f'<div><strong class="agon-name">{escape(session.name(side) or "")}</strong>'
        f'<span class="agon-standing">{_standing(session.standings.get(side))}</span>'
        f"{_facts(session, side)}</div></div>"
    )


def _facts(session: Session, side: Side) -> str:
    facts = " \u00b7 ".join(session.facts.get(side, ()))
    return f'<span class="agon-facts">{escape(facts)}</span>' if facts else ""


def _standing(standing: Standing | None) -> str:
    if standing is None:
        return texts.RATING_PENDING
    change = ""
    if standing.is_new:
        change = f" {texts.NEW_TO_BOARD}"
    elif standing.change is not None and standing.rank is not None:  # without a rank it would be noise
        direction = "up" if standing.change > 0 else "down" if standing.change < 0 else "same"
        change = f' <b class="agon-{direction}">{standing.change:+.1f}</b>'
    place = texts.NO_RANK if standing.rank is None else texts.rank(standing.rank, standing.num_models)
    return f"<span>{standing.rating:.0f}{change}</span> <span>{escape(place)}</span>"
