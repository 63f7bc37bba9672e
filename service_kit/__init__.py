"""What every HTTP service of ours does: request heads, bodies, event streams, keys, logs, errors, telemetry off.

Used by controller, model_worker and webui. Knows wire types only: no engine, no store, no route.
"""
