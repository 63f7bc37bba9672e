"""What went wrong with a conversation, or took long: sentences from its trail. Pure functions, no I/O."""

from collections.abc import Iterator, Sequence

from wire.trails import TrailEntry

SLOW_FIRST_TOKEN_MS = 5000.0
SLOW_TOKENS_PER_S = 5.0
_FEW_TOKENS = 8  #: too few to tell a speed from

#: What the codes of refusals mean to an operator.
_MEANINGS = {
    "queue_full": "all places at its workers were taken",
    "no_worker_available": "no worker of the model was registered and ready",
    "store_unavailable": "the store did not answer; the controllers' logs say why",
    "context_length_exceeded": "the conversation was longer than the model's context",
    "worker_timeout": "the worker sent no token in time",
    "worker_failed": "the worker failed, and no other one could go on",
    "model_not_found": "the model does not exist, is retired or switched off",
    "battle_not_finished": "both models had not answered",
    "battle_already_voted": "another vote was recorded before",
    "not_enough_models": "fewer than two models had a ready worker with a free place",
    "battle_not_found": "the battle had expired",
    "battle_aborted": "the battle had been given up",
    "stale_turn": "the page showed an older turn",
    "not_your_battle": "it came from another visitor than the one who began the battle",
}


def causes(entries: Sequence[TrailEntry]) -> tuple[str, ...]:
    """One sentence for each thing that went wrong or took long, in order; none where nothing did."""
    return tuple(dict.fromkeys(_sentences(entries)))


def _sentences(entries: Sequence[TrailEntry]) -> Iterator[str]:
    owner = None
    for index, entry in enumerate(entries):
        who = _who(entry)
        match entry.step:
            case "began":
                owner = entry.controller
            case "refused":
                yield f"{_turn(entry)} was refused: {_meaning(entry.reason)}."
            case "taken_over":
                former = f" of {owner}" if owner not in (None, entry.controller) else ""
                yield (
                    f"{_turn(entry)}: the controller{former} ended in the middle; {entry.controller} went on with it "
                    f"{_seconds(entry.ms)} after its beginning."
                )
                owner = entry.controller
            case "trouble":
                followed = _what_followed(entries[index + 1 :], entry)
                yield f"{who}: worker {entry.worker} failed ({entry.reason}){followed}."
            case "redrawn":
                yield f"{who} took the place of a model that could not begin."
            case "first_token" if (entry.ms or 0) > SLOW_FIRST_TOKEN_MS:
                yield f"{who}: the first token took {_seconds(entry.ms)}."
            case "finished":
                yield from _slowness(entries, entry, who)
            case "failed":
                if not _has_trouble(entries[:index], entry):
                    yield f"{who} failed: {_meaning(entry.reason)}."
            case "ended" if entry.reason in ("stopped", "lost"):
                what = "was stopped by the visitor" if entry.reason == "stopped" else "was lost to another controller"
                yield f"{_turn(entry)} {what} after {_seconds(entry.ms)}."
            case "vote_refused":
                yield f"A vote was refused: {_meaning(entry.reason)}."
            case "voted" if entry.reason:
                yield f"The vote is not rated: {entry.reason.replace('_', ' ').replace(',', ', ')}."


def _slowness(entries: Sequence[TrailEntry], end: TrailEntry, who: str) -> Iterator[str]:
    if (end.queue_ms or 0) > SLOW_FIRST_TOKEN_MS / 2:
        yield f"{who} waited {_seconds(end.queue_ms)} in the queue of worker {end.worker}."
    first = next((one for one in entries if one.step == "first_token" and _same_answer(one, end)), None)
    if first is None or first.ms is None or end.ms is None or (end.tokens or 0) < _FEW_TOKENS:
        return
    seconds = (end.ms - first.ms) / 1000
    if seconds > 0 and (speed := ((end.tokens or 0) - 1) / seconds) < SLOW_TOKENS_PER_S:
        yield f"{who} wrote {speed:.1f} tokens a second."


def _what_followed(later: Sequence[TrailEntry], trouble: TrailEntry) -> str:
    """How an answer went on after its worker had failed."""
    for entry in later:
        if not _same_answer(entry, trouble):
            continue
        match entry.step:
            case "accepted":
                where = "the same worker" if entry.worker == trouble.worker else f"worker {entry.worker}"
                return f"; {where} went on" if trouble.tokens else f"; {where} answered instead"
            case "redrawn":
                return f"; {entry.model} answered instead"
            case "failed":
                return f"; no other worker could go on, and the side failed ({entry.reason})"
    return ""


def _has_trouble(earlier: Sequence[TrailEntry], end: TrailEntry) -> bool:
    return any(entry.step == "trouble" and _same_answer(entry, end) for entry in earlier)


def _same_answer(one: TrailEntry, other: TrailEntry) -> bool:
    return (one.turn, one.side) == (other.turn, other.side)


def _who(entry: TrailEntry) -> str:
    return f"Turn {entry.turn}, {entry.model}"


def _turn(entry: TrailEntry) -> str:
    return "The conversation" if entry.turn is None else f"Turn {entry.turn}"


def _meaning(reason: str | None) -> str:
    return _MEANINGS.get(reason or "", reason or "no reason is known")


def _seconds(ms: float | None) -> str:
    return "an unknown time" if ms is None else f"{ms / 1000:.1f} s"
