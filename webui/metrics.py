"""What the web UI counts: requests and events, never a word that anybody wrote."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class Metrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "agon_webui_requests_total", "Requests by kind and status.", ["kind", "status"], registry=registry
        )
        self.open_streams = Gauge(
            "agon_webui_open_streams", "Event streams to browsers that are open now.", registry=registry
        )
