"""Events of several steps: what Gradio sends when they end."""

from collections.abc import Iterator
from typing import Any

import gradio as gr

from webui.quiet_blocks import QuietBlocks


def count() -> Iterator[list[Any]]:
    yield ["one", "first"]
    yield ["two", gr.skip()]


async def test_the_end_of_an_event_shows_nothing_again() -> None:
    with QuietBlocks() as blocks:
        outputs = [gr.HTML(), gr.Textbox()]
        gr.Button().click(count, outputs=outputs)
    (function,) = blocks.fns.values()
    steps: list[list[Any]] = []
    iterator = None
    while True:
        done = await blocks.process_api(
            function, [], iterator=iterator, session_hash="visitor", event_id="event", simple_format=True
        )
        steps.append(done["data"])
        iterator = done["iterator"]
        if not done["is_generating"]:
            break
    nothing = {"__type__": "update"}
    assert steps == [["one", "first"], ["two", nothing], [nothing, nothing]]


async def test_an_event_of_one_step_shows_its_values_at_its_end() -> None:
    with QuietBlocks() as blocks:
        output = gr.HTML()
        gr.Button().click(lambda: "one", outputs=output)
    (function,) = blocks.fns.values()
    done = await blocks.process_api(function, [], session_hash="visitor", event_id="event")
    assert (done["data"], done["is_generating"]) == (["one"], False)
