"""Traces of turns and votes for an OpenTelemetry collector (OTLP over HTTP). Off unless AGON_OTLP_ENDPOINT is set.

Spans are made from the trail (trails.py) when a turn has ended, so that nothing is measured twice and tokens cost
nothing. The trace of a request has the id of its X-Request-Id where that is 32 hexadecimal digits, as ours are.
"""

import hashlib
import re
import ssl
from collections import OrderedDict
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Tracer, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Status, StatusCode, set_span_in_context
from requests.adapters import HTTPAdapter

from controller.battles.spans import Span, turn_span, vote_span
from service_kit.trust import trust
from wire.ids import BattleId
from wire.trails import TrailEntry

_MAX_TURNS: Final = 10_000  #: turns under way whose entries are held
_IS_TRACE_ID: Final = re.compile("[0-9a-f]{32}")
_trace_id: ContextVar[int] = ContextVar("trace_id")


class _Ids(RandomIdGenerator):
    """Trace ids that the caller has chosen."""

    def generate_trace_id(self) -> int:
        return _trace_id.get()


class _Trusting(HTTPAdapter):
    """HTTPS with the authorities of a context beside those that requests trusts by itself."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, ssl_context=self._context, **options)


def _session(ca_file: Path | None) -> requests.Session:
    session = requests.Session()
    context = trust(ca_file)
    if isinstance(context, ssl.SSLContext):
        session.mount("https://", _Trusting(context))
    return session


class Traces:
    """Owns the entries of turns under way, and the exporter with its thread."""

    def __init__(self, endpoint: str, ca_file: Path | None = None, exporter: SpanExporter | None = None) -> None:
        """endpoint: a URL such as http://collector:4318/v1/traces. ca_file: private authorities that it may be signed
        by, beside the public ones. exporter: for tests."""
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": "agon-controller"}), id_generator=_Ids()
        )
        exporter = exporter or OTLPSpanExporter(endpoint, session=_session(ca_file))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer: Tracer = self._provider.get_tracer("agon")  # type: ignore[assignment]
        self._turns: OrderedDict[tuple[BattleId, int], list[TrailEntry]] = OrderedDict()

    def note(self, conversation: BattleId, entry: TrailEntry) -> None:
        """Take an entry of a trail. The last one of a turn, and a vote, send a trace."""
        if entry.step in ("voted", "vote_refused"):
            started = entry.time - (entry.ms or 0) / 1000
            self._send(vote_span(entry, started), entry.request_id or conversation)
        elif entry.turn is not None:
            key = conversation, entry.turn
            self._turns.setdefault(key, []).append(entry)
            if entry.step == "ended":
                entries = self._turns.pop(key)
                self._send(turn_span(entries), entries[0].request_id or conversation)
            elif len(self._turns) > _MAX_TURNS:
                self._turns.popitem(last=False)

    def close(self) -> None:
        """Send what waits, for five seconds at most, and end the thread."""
        self._provider.force_flush(5000)
        self._provider.shutdown()

    def _send(self, span: Span, request_id: str) -> None:
        digits = request_id if _IS_TRACE_ID.fullmatch(request_id) else hashlib.sha256(request_id.encode()).hexdigest()
        token = _trace_id.set(int(digits[:32], 16))
        try:
            self._record(span, None)
        finally:
            _trace_id.reset(token)

    def _record(self, span: Span, parent: object) -> None:
        recorded = self._tracer.start_span(
            span.name,
            context=parent,  # type: ignore[arg-type]
            attributes=dict(span.attributes),
            start_time=_nanoseconds(span.start),
        )
        if span.is_error:
            recorded.set_status(Status(StatusCode.ERROR))
        for child in span.children:
            self._record(child, set_span_in_context(recorded))
        recorded.end(_nanoseconds(span.end))


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
