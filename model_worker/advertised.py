"""The URL that a worker gives to controllers: refused where a controller cannot reach the worker under it."""

from urllib.parse import urlsplit

from model_worker.config import WorkerSettings
from model_worker.errors import BadSettings
from service_kit.own_addresses import is_loopback_host, is_this_machine


def check_advertised(settings: WorkerSettings) -> None:
    """Raises BadSettings for a loopback URL towards a controller on another machine: the controller would take another
    worker, one of its own machine, for this one. May resolve the controllers' names."""
    url = settings.advertised_url(settings.port)
    if not is_loopback_host(urlsplit(url).hostname or ""):
        return
    for controller in settings.controller_urls:
        host = urlsplit(controller).hostname or ""
        if not is_this_machine(host):
            raise BadSettings(
                f"the controller on {host} cannot reach this worker at {url}, which is this machine for every machine: "
                "give --host (AGON_HOST) an address of this machine, or set AGON_WORKER_URL"
            )
