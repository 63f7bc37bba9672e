"""A turn as spans: how long each side waited in a queue, read its prompt, wrote, and was replayed. Pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wire.battles import SIDES
from wire.trails import TrailEntry


@dataclass(frozen=True, slots=True)
class Span:
    """One stretch of time. Times are Unix seconds; attributes hold no text of a conversation."""

    name: str
    start: float
    end: float
    attributes: Mapping[str, str | int | float] = field(default_factory=dict)
    children: tuple["Span", ...] = ()
    is_error: bool = False


def turn_span(entries: Sequence[TrailEntry]) -> Span:
    """The span of a turn from its entries, the first of which began it or took it over and the last of which ended
    it."""
    first, last = entries[0], entries[-1]
    sides = tuple(
        _side_span(own, first.time, last.time)
        for side in SIDES
        if (own := [entry for entry in entries if entry.side == side])
    )
    attributes = _given(turn=first.turn, result=last.reason, controller=last.controller)
    return Span("turn", first.time, last.time, attributes, sides, is_error=last.reason in ("failed", "refused", "lost"))


def vote_span(entry: TrailEntry, started: float) -> Span:
    """The span of a vote that was recorded or refused."""
    return Span("vote", started, entry.time, _given(refused=entry.reason), is_error=entry.step == "vote_refused")


def _side_span(entries: Sequence[TrailEntry], began: float, ended: float) -> Span:
    """One side's answer: a span for each thing that it waited for or did."""
    children: list[Span] = []
    at, name = began, "wait"  # for a place at a worker, and for the worker to accept
    for entry in entries:
        worker = _given(worker=entry.worker)
        match entry.step:
            case "accepted":
                children.append(Span(name, at, entry.time, worker))
                at, name = entry.time, "prefill"
            case "first_token":
                children.append(Span("prefill", at, entry.time, worker))
                at, name = entry.time, "decode"
            case "trouble":
                said = {**worker, **_given(reason=entry.reason)}
                children.append(Span(name, at, entry.time, said, is_error=True))
                at, name = entry.time, "replay" if entry.tokens else "retry"
            case "finished" | "failed":
                children.append(Span(name if name != "prefill" else "decode", at, entry.time, worker))
                at = entry.time
    end = max((child.end for child in children), default=ended)
    last = entries[-1]
    attributes = _given(
        side=last.side, model=last.model, tokens=last.tokens, finish=last.reason, request_id=_answer_id(entries)
    )
    queue_ms = next((entry.queue_ms for entry in entries if entry.queue_ms is not None), None)
    return Span(
        "answer",
        began,
        end,
        {**attributes, **_given(queue_ms=queue_ms)},
        tuple(_with_queue(children, queue_ms)),
        is_error=any(entry.step == "failed" for entry in entries),
    )


def _with_queue(spans: Sequence[Span], queue_ms: float | None) -> list[Span]:
    """The spans, with the time in the worker's queue taken out of the first prefill."""
    if queue_ms is None:
        return list(spans)
    found: list[Span] = []
    for span in spans:
        until = min(span.end, span.start + queue_ms / 1000)
        if span.name == "prefill" and not any(one.name == "queue" for one in found):
            found += [
                Span("queue", span.start, until, span.attributes),
                Span("prefill", until, span.end, span.attributes),
            ]
        else:
            found.append(span)
    return found


def _answer_id(entries: Sequence[TrailEntry]) -> str | None:
    return next((entry.request_id for entry in entries if entry.step == "accepted"), None)


def _given(**values: str | float | None) -> dict[str, str | int | float]:
    return {f"agon.{name}": value for name, value in values.items() if value is not None}
