"""Whether the controllers believe what this web UI says of its visitors.

A controller that does not takes all of them for one: they share the rate limits of one address, and their cookies are
worth nothing to it. Nothing else shows this, so it is asked at start and now and then, and stands in log and `/ready`.
"""

import logging
from typing import Final

from service_kit.logs import log_event
from webui.client import ControllerClient

EVERY_S: Final = 30.0

_logger = logging.getLogger(__name__)


class Belief:
    """Asks the controllers of `client`. `has_token`: this web UI shows a proxy token."""

    def __init__(self, client: ControllerClient, *, has_token: bool) -> None:
        self._client = client
        self._has_token = has_token
        self._doubting: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether no controller is known that takes all visitors for one."""
        return not self._doubting

    async def ask_round(self) -> None:
        """Ask all controllers, and log a change. A controller that does not answer changes nothing."""
        doubting = await self._client.doubting_controllers(self._doubting)
        for url in sorted({*doubting} - {*self._doubting}):
            log_event(_logger, "visitors_count_as_one", logging.WARNING, controller=url, hint=self._hint())
        for url in sorted({*self._doubting} - {*doubting}):
            log_event(_logger, "visitors_are_told_apart", controller=url)
        self._doubting = doubting

    def _hint(self) -> str:
        if self._has_token:
            return "AGON_PROXY_TOKEN of this web UI is not that of the controller, or the controller has none"
        return (
            "this web UI has no AGON_PROXY_TOKEN: set it to that of the controller, or name this web UI's address in "
            "the controller's AGON_TRUSTED_PROXIES; all visitors share one rate limit until then"
        )
