"""The web UI's metrics: counts of requests and streams, no text of visitors."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class Metrics:
    """The metrics of one process, in its own registry. The middleware of doors.py and peers.py updates them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "agon_webui_requests_total", "Requests by kind and status.", ["kind", "status"], registry=registry
        )
        self.passed_on = Counter(
            "agon_webui_passed_on_total",
            "Requests of pages of another web UI: `answered` by it, or `gone` where it could not be reached.",
            ["outcome"],
            registry=registry,
        )
        self.open_streams = Gauge(
            "agon_webui_open_streams", "Event streams to browsers that are open now.", registry=registry
        )
