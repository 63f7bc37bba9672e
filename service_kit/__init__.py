"""What every HTTP service of ours does: connections, request heads, bodies, origins, event streams, keys, logs, errors.

Used by controller, model_worker and webui. It imports wire types only: no engine, no store, no route.
"""
