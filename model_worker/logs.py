"""What the processes of a worker log."""

#: Loggers that log from INFO on: the worker, and the start of the engine. None of them logs text of a request.
LOGGED = ("model_worker", "service_kit", "engine.runner", "engine.kernels")
