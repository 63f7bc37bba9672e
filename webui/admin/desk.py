"""The sections of the admin page as markup. Pure: what the controller answered goes in, markup comes out.

Each form names its action in `data-act`; its fields are those that actions.py takes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

from webui import texts
from webui.admin import words
from webui.admin.served import served_section
from wire.admin import (
    Action,
    ActionList,
    AdminModel,
    AdminView,
    AdminVote,
    AdminVotes,
    AdminWorker,
    FailuresView,
    RateInForce,
)
from wire.model_cards import BoardCard, BoardCards
from wire.notices import MAX_NOTICE_CHARS, MAX_TERMS_CHARS, Notice
from wire.served_models import AdminServed


@dataclass(frozen=True)
class Desk:
    """What the administrator looks at."""

    view: AdminView
    votes: AdminVotes
    failures: FailuresView
    actions: ActionList
    cards: BoardCards
    served: AdminServed
    now: float  #: Unix time
    is_first_page: bool = True  #: of the votes


def render(desk: Desk) -> str:
    """All sections."""
    sections = (
        ("models", words.MODELS, _models(desk)),
        ("workers", words.WORKERS, _workers(desk.view.workers)),
        ("served", words.SERVED, served_section(desk.served)),
        ("notices", words.NOTICES, _notices(desk.view.notices, desk.now)),
        ("terms", words.TERMS, _terms(desk.view)),
        ("votes", words.VOTES, _votes(desk.votes, is_first=desk.is_first_page)),
        ("failures", words.FAILURES, _failures(desk.failures)),
        ("rates", words.RATES, _rates(desk.view.rates, desk.failures)),
        ("actions", words.ACTIONS, _actions(desk.actions.actions)),
    )
    links = "".join(f'<li><a href="#{name}">{title}</a></li>' for name, title, _ in sections)
    bodies = "".join(
        f'<section aria-labelledby="{name}"><h2 id="{name}" tabindex="-1">{title}</h2>{body}</section>'
        for name, title, body in sections
    )
    return (
        f'<p class="agon-admin-who">{words.SIGNED_IN} <b>{escape(desk.view.actor)}</b> '
        f'<button type="button" data-do="refresh">{words.REFRESH}</button> '
        f'<button type="button" data-do="sign-out">{words.SIGN_OUT}</button></p>'
        f'<nav aria-label="{words.CONTENTS}"><ul>{links}</ul></nav>{bodies}'
    )


def _models(desk: Desk) -> str:
    rows = _rows(_model(model) for model in desk.view.models)
    return f"{_help(words.MODELS_HELP)}{rows}{_help(words.NEW_MODEL_HELP)}{_new_model()}{_retirement(desk)}"


def _retirement(desk: Desk) -> str:
    """Takes a model out of battles from today on, or puts it back into service. Each choice holds the new card."""
    cards = {card.model: card for card in desk.cards.models}
    today = f"{datetime.fromtimestamp(desk.now, UTC):%Y-%m-%d}"
    options = ""
    for name in sorted({*cards, *(model.model for model in desk.view.models)}):
        card = cards.get(name, BoardCard(model=name))
        verb, day = (words.PUT_BACK, None) if card.retired else (words.RETIRE, today)
        changed = card.model_copy(update={"retired": day}).model_dump_json(exclude_none=True)
        options += f'<option value="{escape(changed)}">{verb}: {escape(name)}</option>'
    return (
        f'<form class="agon-wide" data-act="retire_model" aria-label="{words.RETIREMENT}">'
        f'<label>{words.RETIREMENT}<select name="card" required><option value=""></option>{options}</select></label>'
        f"{_reason()}<button>{words.SAVE}</button></form>"
    )


def _new_model() -> str:
    """A card for a model that has no worker yet."""
    return (
        f'<form class="agon-wide" data-act="put_card" aria-label="{words.NEW_MODEL}">'
        f'<label>{words.NEW_MODEL}<input name="model" maxlength="128" autocomplete="off" required></label>'
        f'<label>{words.PROVIDER}<input name="provider" maxlength="120" autocomplete="off"></label>'
        f'<label>{words.LICENCE}<input name="licence" maxlength="120" autocomplete="off"></label>'
        f'<label>{words.RELEASED}<input type="date" name="released"></label>'
        f"{_reason()}<button>{words.ADD}</button></form>"
    )


def _model(model: AdminModel) -> str:
    name = escape(model.model)
    state = f"{model.ready_workers}/{model.workers} {texts.WORKER_STATES['ready']}"
    if model.is_retired:
        state += f" &middot; {words.RETIRED}"
    return (
        f'<form data-act="set_model" aria-label="{name}"><input type="hidden" name="model" value="{name}">'
        f"<p><b>{name}</b><span>{state}</span></p>"
        f'<label class="agon-check"><input type="checkbox" name="is_on"{" checked" if model.is_on else ""}> '
        f"{words.IS_ON}</label>"
        f'<label>{words.WEIGHT}<input type="number" name="weight" value="{model.weight:g}" min="0" max="100" '
        f'step="any" required></label>{_reason()}<button>{words.SAVE}</button></form>'
    )


def _workers(workers: Iterable[AdminWorker]) -> str:
    return _help(words.WORKERS_HELP) + _rows(_worker(worker) for worker in workers)


def _worker(worker: AdminWorker) -> str:
    worker_id = escape(worker.worker_id)
    state = words.AWAY if worker.state is None else texts.WORKER_STATES[worker.state]
    if worker.is_drained:
        state += f" ({words.DRAINED})"
    return (
        f'<form data-act="drain_worker" aria-label="{worker_id}">'
        f'<input type="hidden" name="worker_id" value="{worker_id}">'
        f'<input type="hidden" name="is_drained" value="{"" if worker.is_drained else "yes"}">'
        f"<p><b>{escape(worker.model or worker_id)}</b><span>{worker_id} &middot; {state} &middot; "
        f"{worker.in_flight} {words.IN_FLIGHT}</span></p>"
        f"{_reason()}<button>{words.RESUME if worker.is_drained else words.DRAIN}</button></form>"
    )


def _notices(notices: Iterable[Notice], now: float) -> str:
    severities = "".join(f'<option value="{value}">{name}</option>' for value, name in words.SEVERITIES.items())
    form = (
        '<form class="agon-wide" data-act="add_notice">'
        f'<label class="agon-full">{words.NOTICE_TEXT}<textarea name="text" rows="2" maxlength="{MAX_NOTICE_CHARS}" '
        f"required></textarea></label>"
        f'<label>{words.SEVERITY}<select name="severity">{severities}</select></label>'
        f'<label>{words.STARTS}<input type="datetime-local" name="starts"></label>'
        f'<label>{words.ENDS}<input type="datetime-local" name="ends"></label>'
        f"{_reason()}<button>{words.SHOW_NOTICE}</button></form>"
    )
    return _rows(_notice(notice, now) for notice in notices) + form


def _notice(notice: Notice, now: float) -> str:
    state = "now" if notice.is_shown(now) else "later" if notice.starts > now else "over"
    until = "" if notice.ends is None else f" &ndash; {_time(notice.ends)}"
    return (
        f'<form data-act="remove_notice" aria-label="{escape(notice.text[:60])}">'
        f'<input type="hidden" name="notice_id" value="{notice.id}">'
        f'<p><b dir="auto">{escape(notice.text)}</b><span>{words.SEVERITIES[notice.severity]} &middot; '
        f"{words.NOTICE_STATES[state]} &middot; {_time(notice.starts)}{until}</span></p>"
        f"{_reason()}<button>{words.REMOVE}</button></form>"
    )


def _terms(view: AdminView) -> str:
    terms = view.terms
    state = words.NO_TERMS
    if terms is not None:
        source = f" ({words.TERMS_FROM_FILE})" if terms.source == "file" else ""
        state = f"{words.TERMS_VERSION}: <code>{terms.version}</code>{source}"
    text = "" if terms is None else escape(terms.text)
    return (
        f"{_help(words.TERMS_HELP)}<p>{state}</p>"
        f'<form class="agon-wide" data-act="set_terms"><label class="agon-full">{words.TERMS_TEXT}'
        f'<textarea name="text" rows="8" maxlength="{MAX_TERMS_CHARS}" dir="auto">\n{text}</textarea></label>'
        f"{_reason()}<button>{words.SAVE}</button></form>"
    )


def _votes(votes: AdminVotes, *, is_first: bool) -> str:
    table = _table(words.VOTES, words.VOTE_COLUMNS, (_vote(vote) for vote in votes.votes))
    newest = "" if is_first else f'<button type="button" data-do="votes" data-before="">{words.NEWEST}</button>'
    older = ""
    if votes.next is not None:
        older = f'<button type="button" data-do="votes" data-before="{escape(votes.next)}">{words.OLDER}</button>'
    return f'{_help(words.VOTES_HELP)}{table}<p class="agon-admin-more">{newest}{older}</p>'


def _vote(vote: AdminVote) -> Sequence[str]:
    is_void = "withdrawn" in vote.flags
    label = escape(f"{words.RESTORE if is_void else words.VOID}: {vote.battle_id}")
    voter = "" if vote.voter is None else f'<option value="voter">{words.THIS_VOTER}</option>'
    form = (
        f'<form data-act="judge_votes" aria-label="{label}">'
        f'<input type="hidden" name="action" value="{"unflag" if is_void else "flag"}">'
        f'<input type="hidden" name="battle_id" value="{escape(vote.battle_id)}">'
        f'<input type="hidden" name="voter" value="{escape(vote.voter or "")}">'
        f'<label>{words.SCOPE}<select name="scope"><option value="vote">{words.THIS_VOTE}</option>{voter}</select>'
        f"</label>{_reason(is_required=True)}<button>{words.RESTORE if is_void else words.VOID}</button></form>"
    )
    return (
        _time(vote.time),
        f"A {escape(vote.model_a)}<br>B {escape(vote.model_b)}",
        escape(texts.VOTES[vote.outcome]),
        f"<code>{escape((vote.voter or '')[:8])}</code>{'' if vote.cohort is None else ' ' + escape(vote.cohort)}",
        escape(", ".join(vote.flags)),
        form,
    )


def _failures(failures: FailuresView) -> str:
    rows = [
        (
            escape(failure.cause),
            escape(failure.model),
            escape(failure.worker_id),
            f"{failure.count:,}",
            _time(failure.last),
        )
        for failure in failures.failures
    ]
    return _table(words.FAILURES, words.FAILURE_COLUMNS, rows)


def _rates(rates: Iterable[RateInForce], failures: FailuresView) -> str:
    refused = dict(failures.rate_limited)
    named = [rate for rate in rates if rate.kind not in ("other", "local")]
    rows = [
        (words.RATE_KINDS.get(rate.kind, rate.kind), f"{rate.per_minute:,}", f"{rate.burst:,}", f"{count:,}")
        for rate, count in ((rate, refused.pop(rate.kind, 0)) for rate in named)
    ]
    others = ", ".join(f"{escape(kind)} {count:,}" for kind, count in sorted(refused.items()))
    for rate in rates:
        if rate.kind in ("other", "local"):
            counts = others if rate.kind == "other" else ""
            rows.append((words.RATE_KINDS[rate.kind], f"{rate.per_minute:,}", f"{rate.burst:,}", counts))
    return _help(words.RATES_HELP) + _table(words.RATES, words.RATE_COLUMNS, rows)


def _actions(actions: Iterable[Action]) -> str:
    rows = [
        (
            _time(action.time),
            f"{escape(action.by)}<br>{escape(action.address)}",
            words.ACTION_NAMES[action.action],
            escape(action.subject),
            escape(", ".join(f"{name}: {value}" for name, value in action.values.items())[:300]),
            escape(action.reason),
        )
        for action in actions
    ]
    export = f'<p class="agon-admin-more"><button type="button" data-do="export">{words.EXPORT}</button></p>'
    return _table(words.ACTIONS, words.ACTION_COLUMNS, rows) + export


def _rows(rows: Iterable[str]) -> str:
    return "".join(rows) or f"<p>{words.NONE}</p>"


def _table(label: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    if not body:
        return f"<p>{words.NONE}</p>"
    head = "".join(f'<th scope="col">{column}</th>' if column else "<td></td>" for column in columns)
    return (
        f'<div class="agon-admin-scroll" role="group" aria-label="{label}" tabindex="0"><table><thead><tr>{head}</tr>'
        f"</thead><tbody>{body}</tbody></table></div>"
    )


def _reason(*, is_required: bool = False) -> str:
    return (
        f'<label>{words.REASON}<input name="reason" maxlength="500" autocomplete="off"'
        f"{' required' if is_required else ''}></label>"
    )


def _help(sentence: str) -> str:
    return f'<p class="agon-admin-help">{escape(sentence)}</p>'


def _time(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return f'<time datetime="{moment:%Y-%m-%dT%H:%M:%SZ}">{moment:%Y-%m-%d %H:%M} UTC</time>'
