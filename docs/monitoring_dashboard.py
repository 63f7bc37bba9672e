"""Writes docs/monitoring/dashboard.json, a Grafana dashboard: `python -m docs.monitoring_dashboard`."""

import json
from pathlib import Path
from typing import Any

OUTPUT = Path(__file__).parent / "monitoring" / "dashboard.json"
_WIDTH, _HEIGHT, _PER_ROW = 8, 8, 3
_SOURCE = {"type": "prometheus", "uid": "${source}"}


def quantile(share: float, histogram: str, by: str = "") -> str:
    """The expression of a quantile over five minutes."""
    labels = ", ".join(name for name in ("le", by) if name)
    return f"histogram_quantile({share}, sum by ({labels}) (rate({histogram}_bucket[5m])))"


#: Title, unit, and expressions by their legends.
PANELS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("Battles and votes", "short", {
        "battles / min": "60 * sum(rate(arena_battles_total[5m]))",
        "votes / min {{result}}": "60 * sum by (result) (rate(arena_votes_total[5m]))",
    }),
    ("Turns by their end", "short", {"{{result}} / min": "60 * sum by (result) (rate(arena_turns_total[5m]))"}),
    ("Turns under way", "short", {"{{instance}}": "arena_open_turns"}),
    ("First token, as controllers see it", "s", {
        "half": quantile(0.5, "arena_time_to_first_token_seconds"),
        "nine in ten": quantile(0.9, "arena_time_to_first_token_seconds"),
        "99 in 100": quantile(0.99, "arena_time_to_first_token_seconds"),
    }),
    ("Time to a durable vote", "s", {
        "half": quantile(0.5, "arena_vote_commit_seconds"),
        "99 in 100": quantile(0.99, "arena_vote_commit_seconds"),
    }),
    ("Ready workers by model", "short", {"{{model}}": 'sum by (model) (arena_registry_workers{state="ready"})'}),
    ("Requests by route, 99 in 100", "s", {"{{route}}": quantile(0.99, "arena_http_request_seconds", "route")}),
    ("Answers of services with status 5xx", "short", {
        "{{route}} / min": '60 * sum by (route) (rate(arena_http_request_seconds_count{status="5xx"}[5m]))',
    }),
    ("Store errors and fail-overs of answers", "short", {
        "store {{op}} / min": "60 * sum by (op) (rate(arena_redis_errors_total[5m]))",
        "answers moved, {{phase}} / min": "60 * sum by (phase) (rate(arena_failovers_total[5m]))",
    }),
    ("Tokens a second", "short", {
        "{{instance}} generated": "sum by (instance) (rate(agon_generation_tokens_total[1m]))",
        "{{instance}} prompts": "sum by (instance) (rate(agon_prompt_tokens_total[1m]))",
    }),
    ("Requests at workers", "short", {
        "{{instance}} running": "sum by (instance) (agon_requests_running)",
        "{{instance}} waiting": "sum by (instance) (agon_requests_waiting)",
    }),
    ("Time in a worker's queue, nine in ten", "s", {"{{instance}}": quantile(0.9, "agon_queue_seconds", "instance")}),
    ("Between two tokens", "s", {
        "half": quantile(0.5, "agon_inter_token_seconds"),
        "99 in 100": quantile(0.99, "agon_inter_token_seconds"),
    }),
    ("Page pool in use", "percentunit", {"{{instance}}": "max by (instance) (agon_kv_usage_ratio)"}),
    ("Prefix cache: share of prompt tokens found", "percentunit", {
        "{{instance}}": "sum by (instance) (rate(agon_prefix_cache_hits_total[5m])) "
        "/ sum by (instance) (rate(agon_prefix_cache_queries_total[5m]))",
    }),
    ("Preemptions", "short", {"{{instance}} / min": "60 * sum by (instance) (rate(agon_preemptions_total[5m]))"}),
    ("Failed requests at workers", "short", {
        "{{instance}} / min": "60 * sum by (instance) (rate(agon_requests_failed_total[5m]))",
    }),
    ("Memory of controllers", "bytes", {"{{instance}}": "process_resident_memory_bytes"}),
)  # fmt: skip


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it (schema 39)."""
    panels = []
    for index, (title, unit, expressions) in enumerate(PANELS):
        row, column = divmod(index, _PER_ROW)
        panels.append(
            {
                "id": index + 1,
                "title": title,
                "type": "timeseries",
                "datasource": _SOURCE,
                "gridPos": {"h": _HEIGHT, "w": _WIDTH, "x": column * _WIDTH, "y": row * _HEIGHT},
                "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                "targets": [
                    {"refId": chr(ord("A") + number), "expr": expression, "legendFormat": legend, "datasource": _SOURCE}
                    for number, (legend, expression) in enumerate(expressions.items())
                ],
            }
        )
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {
        "title": "Agon",
        "uid": "agon",
        "schemaVersion": 39,
        "tags": ["agon"],
        "time": {"from": "now-3h", "to": "now"},
        "refresh": "15s",
        "templating": {"list": [source]},
        "panels": panels,
    }


def main() -> None:
    """Write the file."""
    OUTPUT.write_text(json.dumps(dashboard(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
