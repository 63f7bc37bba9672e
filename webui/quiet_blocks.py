"""Gradio's Blocks, where an event speaks its visitor's language, shows nothing twice, and where one that raises leaves
a line in the log and nothing that a visitor wrote.

Gradio prints the traceback of such an event, and the messages of its own errors quote the values of the inputs. At the
end of an event that shows several things one after the other, it sends the last of them again; what another event has
shown meanwhile would be overwritten, for instance a new battle by the end of the load that showed the old one.
"""

import logging
from typing import Any

import gradio as gr
from gradio.utils import MatplotlibBackendMananger

from service_kit.logs import log_event
from service_kit.request_context import serving
from service_kit.request_ids import request_id_of
from webui import texts
from webui.languages import active, speaking
from webui.links import prefix_in, under
from webui.visitor_language import language_in

_logger = logging.getLogger(__name__)


def import_what_events_need() -> None:
    """Import matplotlib, where it is installed, before the first event: Gradio's import of it in the middle of an event
    stopped the event loop for 0.4 s."""
    with MatplotlibBackendMananger():
        pass


class QuietBlocks(gr.Blocks):
    """The root of the pages. A failed event shows texts.EVENT_FAILED in the browser."""

    async def process_api(self, block_fn: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Run one event, or the next step of one, as Gradio does: in its own tasks, which know no request. Raises
        gr.Error, which Gradio shows and does not print, if it fails."""
        sent = getattr(kwargs.get("request"), "request", None)
        language = active() if sent is None else language_in(sent.scope, active())
        prefix = "" if sent is None else prefix_in(sent.scope)
        with speaking(language), under(prefix), serving(None if sent is None else request_id_of(sent.scope)):
            try:
                done = await super().process_api(block_fn, *args, **kwargs)
                is_end = block_fn.types_generator and not done["is_generating"]
                return {**done, "data": [gr.skip() for _ in done["data"]]} if is_end else done
            except gr.Error as error:  # Gradio's refusal of an input, for instance of a choice that is not offered
                log_event(_logger, "event_refused", exc_info=error, function=block_fn.name)
            except Exception as error:
                log_event(_logger, "event_failed", logging.ERROR, exc_info=error, function=block_fn.name)
            raise gr.Error(texts.EVENT_FAILED, print_exception=False)
