"""The section of the admin page about what worker processes serve: memory, states, and what can be done. Pure."""

from collections.abc import Iterable, Sequence
from html import escape

from webui.admin import words
from wire.hosted_models import is_hosted
from wire.served_models import MAX_SOURCE_CHARS, AdminServed, ServedModel, WorkerModels


def served_section(served: AdminServed) -> str:
    """Every process with its models, and a form for another model."""
    urls = [process.url for process in served.processes]
    rows = "".join(_process(process, urls) for process in served.processes)
    silent = "".join(f"<p><b>{escape(url)}</b> {words.SILENT}</p>" for url in served.silent)
    return f"{_help(words.SERVED_HELP)}{rows}{silent}{_new(urls)}"


def _process(process: WorkerModels, urls: Sequence[str]) -> str:
    limit = "" if process.memory_limit is None else f" {words.OF} {_size(process.memory_limit)}"
    head = f"<p><b>{escape(process.url)}</b> {_size(process.memory_bytes)}{limit} {words.IN_MEMORY}</p>"
    return head + "".join(_model(model, process.url, urls) for model in process.models)


def _model(model: ServedModel, url: str, urls: Sequence[str]) -> str:
    name = escape(model.name)
    state = words.HOSTED if is_hosted(model.source) else words.RESIDENCES[model.residence]
    if trouble := model.error or model.problem:
        state = f"{state}: {trouble}"
    facts = [escape(state)]
    if model.chat in words.CHAT_FORMS:
        facts.append(words.CHAT_FORMS[model.chat])
    if not is_hosted(model.source):
        facts.append(_size(model.memory_bytes or model.wanted_bytes))
    if model.running or model.waiting:
        facts.append(f"{model.running + model.waiting} {words.IN_FLIGHT}")
    others = [other for other in urls if other != url]
    actions = "".join(
        f'<option value="{value}">{text}</option>'
        for value, text in words.MODEL_ACTIONS.items()
        if value != "move" or others
    )
    to = _select("to", words.MOVE_TO, others, words.NOWHERE) if others else ""
    return (
        f'<form data-act="act_served" aria-label="{words.MEMORY_OF} {name}">'
        f'<input type="hidden" name="name" value="{name}">'
        f'<input type="hidden" name="worker" value="{escape(url)}">'
        f"<p><b>{name}</b><span>{' &middot; '.join(facts)}</span></p>"
        f'<label>{words.ACTION}<select name="action">{actions}</select></label>{to}{_reason()}'
        f"<button>{words.DO}</button></form>"
    )


def _new(urls: Sequence[str]) -> str:
    worker = _select("worker", words.IN_WORKER, urls, words.EMPTIEST) if len(urls) > 1 else ""
    return (
        f'{_help(words.ADD_MODEL_HELP)}<form class="agon-wide" data-act="add_served" aria-label="{words.ADD_MODEL}">'
        f'<label>{words.ADD_MODEL}<input name="name" maxlength="128" autocomplete="off" required></label>'
        f'<label>{words.SOURCE}<input name="source" maxlength="{MAX_SOURCE_CHARS}" autocomplete="off" required></label>'
        f"{worker}{_reason()}<button>{words.ADD}</button></form>"
    )


def _select(name: str, label: str, values: Iterable[str], none: str) -> str:
    options = "".join(f'<option value="{escape(value)}">{escape(value)}</option>' for value in values)
    return f'<label>{label}<select name="{name}"><option value="">{none}</option>{options}</select></label>'


def _reason() -> str:
    return f'<label>{words.REASON}<input name="reason" maxlength="500" autocomplete="off"></label>'


def _help(sentence: str) -> str:
    return f'<p class="agon-admin-help">{escape(sentence)}</p>'


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f} GiB" if num_bytes >= 2**30 else f"{num_bytes / 2**20:.0f} MiB"
