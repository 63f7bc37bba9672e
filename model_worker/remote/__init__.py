"""Another server behind the engine protocol: any OpenAI-compatible endpoint becomes a model of the arena.

engine.py    RemoteEngine: attempts, back-off, when the model takes no requests
keys.py      the key for the other server
requests.py  what is sent
stream.py    what comes back
failures.py  what a failure means, for clients and for the operator
caps.py      limits of requests, tokens and cost
"""

from model_worker.remote.engine import RemoteEngine

__all__ = ["RemoteEngine"]
