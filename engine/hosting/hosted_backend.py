"""The Backend of one model of a host: its AsyncEngine's commands go to the host's thread."""

from engine.backend import Command, Stop
from engine.hosting.host_thread import HostThread
from engine.hosting.hosted_model import HostedModel


class HostedBackend:
    """The Backend of one model's AsyncEngine."""

    def __init__(self, thread: HostThread, model: HostedModel) -> None:
        self._thread = thread
        self._model = model

    def send(self, command: Command) -> None:
        """See Backend."""
        self._thread.tell(self._model, command)

    def is_alive(self) -> bool:
        """See Backend."""
        return self._model.state != "ending"

    def kill(self) -> None:
        """End the model as soon as it is loaded."""
        self._thread.tell(self._model, Stop())
