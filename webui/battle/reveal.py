"""The names, ratings and cards of both models, shown after the vote."""

from html import escape

from webui import sentences, texts
from webui.battle.session import Session, Standing
from webui.links import link_to
from webui.number_formats import signed
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
        f"{_link(session)}"
    )


def spoken(session: Session) -> str:
    """The same for screen readers; nothing before the vote."""
    if session.outcome is None or session.names is None:
        return ""
    return sentences.revealed(session.outcome, *session.names)


def _link(session: Session) -> str:
    """The way to the battle's own page, with its files and its link."""
    path = link_to(f"{texts.HISTORY_PATH}/{session.battle_id}")
    link = f'<a class="agon-keep" href="{path}" target="_blank">{escape(texts.KEEP_BATTLE)}</a>'
    return f'<p class="agon-unrated">{link}</p>'


def _plate(session: Session, side: Side) -> str:
    chosen = " agon-chosen" if session.outcome == side else ""
    standing = _standing(session.standings.get(side), is_rated=session.is_rated)
    return (
        f'<div class="agon-plate agon-side-{side}{chosen}"><span class="agon-chip">{texts.SIDE_NAME[side]}</span>'
        f'<div><strong class="agon-name">{escape(session.name(side) or "")}</strong>'
        f'<span class="agon-standing">{standing}</span>{_facts(session, side)}</div></div>'
    )


def _facts(session: Session, side: Side) -> str:
    facts = " \u00b7 ".join(session.facts.get(side, ()))
    return f'<span class="agon-plate-facts">{escape(facts)}</span>' if facts else ""


def _standing(standing: Standing | None, *, is_rated: bool) -> str:
    """The rating, its change by this vote, and the place. A vote that is not rated changes nothing."""
    if standing is None:
        return texts.RATING_PENDING
    change = ""
    if is_rated and standing.is_new:
        change = f" {texts.NEW_TO_BOARD}"
    elif is_rated and standing.change is not None and standing.rank is not None:  # without a rank it would be noise
        direction = "up" if standing.change > 0 else "down" if standing.change < 0 else "same"
        change = f' <b class="agon-{direction}">{signed(standing.change, 1)}</b>'
    place = texts.NO_RANK if standing.rank is None else sentences.rank(standing.rank, standing.num_models)
    return f"<span>{standing.rating:.0f}{change}</span> <span>{escape(place)}</span>"
