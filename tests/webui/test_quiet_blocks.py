"""Events of several steps: what Gradio sends when they end."""

from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from webui.quiet_blocks import QuietBlocks

NOTHING = {"__type__": "update"}


def count() -> Iterator[list[Any]]:
    yield ["one", "first"]
    yield ["two", gr.skip()]


def show_nothing() -> Iterator[list[Any]]:
    yield from ()


async def steps_of(event: Callable[[], Iterator[list[Any]]]) -> list[list[Any]]:
    with QuietBlocks() as blocks:
        outputs = [gr.HTML(), gr.Textbox()]
        gr.Button().click(event, outputs=outputs)
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
            return steps


async def test_the_end_of_an_event_shows_nothing_again() -> None:
    assert await steps_of(count) == [["one", "first"], ["two", NOTHING], [NOTHING, NOTHING]]


async def test_an_event_can_show_nothing() -> None:
    assert await steps_of(show_nothing) == [[NOTHING, NOTHING]]


async def test_an_event_of_one_step_shows_its_values_at_its_end() -> None:
    with QuietBlocks() as blocks:
        output = gr.HTML()
        gr.Button().click(lambda: "one", outputs=output)
    (function,) = blocks.fns.values()
    done = await blocks.process_api(function, [], session_hash="visitor", event_id="event")
    assert (done["data"], done["is_generating"]) == (["one"], False)
