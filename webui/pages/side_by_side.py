"""The named battle: the visitor chooses both models and optionally the sampling parameters."""

from typing import Any

import gradio as gr

from webui import sentences, texts
from webui.battle.handlers import wire_battle
from webui.battle.parts import battle_parts
from webui.battle.turn import Turns
from webui.client import ControllerClient
from webui.controllers import ControllerUnreachable
from webui.starter_prompts import StarterPrompts
from webui.visitors import Visitor, visitor_of
from webui.widgets import PRIVATE, Sampling, header, model_choice, notice, sampling
from wire.battles import BattleSampling, CreateBattle
from wire.errors import ApiError, ErrorCode

ASK_AGAIN_S = 3.0  #: poll interval while there are too few models to choose from


def build(page: Any, turns: Turns, client: ControllerClient, starters: StarterPrompts) -> None:
    """Create the page's components and bind their events."""
    header("/side-by-side")
    choices: list[gr.Dropdown] = []
    parameters: list[Sampling] = []
    hints: list[gr.HTML] = []

    def settings() -> None:
        with gr.Row(elem_classes=["agon-models"]):
            choices.append(model_choice(texts.MODEL_A, "model-a"))
            choices.append(model_choice(texts.MODEL_B, "model-b"))
        hints.append(gr.HTML("", elem_id="models-hint", apply_default_css=False))
        parameters.append(sampling())

    parts = battle_parts("named", texts.NAMED_TITLE, texts.NAMED_LEAD, settings=settings)
    wire_battle(page, parts, turns, "named", open_named, [*choices, *parameters[0].inputs])

    starters.bind(page, parts.examples)

    timer = gr.Timer(ASK_AGAIN_S)

    async def fill(request: gr.Request) -> list[Any]:
        models = await served_models(client, visitor_of(request))
        if isinstance(models, str):
            return [gr.skip(), gr.skip(), notice(models), gr.skip()]
        first = [gr.update(choices=list(models), value=name) for name in models[:2]]
        if len(models) == 1:
            return [*first, gr.skip(), notice(sentences.failure(ErrorCode.NOT_ENOUGH_MODELS)), gr.skip()]
        return [*first, "", gr.Timer(active=False)]

    outputs = [*choices, hints[0], timer]
    gr.on([page.load, timer.tick], fill, outputs=outputs, concurrency_limit=None, **PRIVATE)


def open_named(
    a: str | None, b: str | None, uses_own: bool, temperature: float, top_p: float, max_tokens: float
) -> CreateBattle | str:
    """The Opening of a named battle; the last four arguments are the values of Sampling.inputs."""
    if not a or not b:
        return texts.CHOOSE_MODEL
    if a == b:
        return texts.SAME_MODELS
    own = own_sampling(uses_own, temperature, top_p, max_tokens)
    return CreateBattle(mode="named", models=(a, b), sampling=own)


def own_sampling(uses_own: bool, temperature: float, top_p: float, max_tokens: float) -> BattleSampling:
    """The sampling from the values of Sampling.inputs; `uses_own` leaves everything to the models."""
    if uses_own:
        return BattleSampling()
    return BattleSampling(temperature=temperature, top_p=top_p, max_tokens=int(max_tokens))


async def served_models(client: ControllerClient, visitor: Visitor) -> tuple[str, ...] | str:
    """The models that can be chosen now, or a sentence that says why there are none."""
    try:
        return await client.models(visitor) or texts.NO_MODELS
    except ControllerUnreachable:
        return texts.UNREACHABLE
    except ApiError as error:
        return sentences.failure(error.code)
