"""The named battle: the visitor chooses both models and, if they like, the sampling parameters."""

from typing import Any

import gradio as gr

from webui import texts
from webui.arena_page import battle_parts, visitor_of, wire_battle
from webui.client import ControllerClient, ControllerUnreachable
from webui.components import PRIVATE, Sampling, header, model_choice, sampling
from webui.turn import Turns
from wire.battles import BattleSampling, CreateBattle
from wire.errors import ApiError


def build(page: Any, turns: Turns, client: ControllerClient, *, max_prompt_chars: int) -> None:
    header("/side-by-side")
    choices: list[gr.Dropdown] = []
    parameters: list[Sampling] = []

    def settings() -> None:
        with gr.Row(elem_classes=["agon-models"]):
            choices.append(model_choice(texts.MODEL_A, "model-a"))
            choices.append(model_choice(texts.MODEL_B, "model-b"))
        parameters.append(sampling())

    parts = battle_parts(
        "named", texts.NAMED_TITLE, texts.NAMED_LEAD, max_prompt_chars=max_prompt_chars, settings=settings
    )
    wire_battle(page, parts, turns, "named", open_named, [*choices, *parameters[0].inputs])

    async def fill(request: gr.Request) -> list[Any]:
        models = await served_models(client, visitor_of(request))
        if isinstance(models, str):
            return [gr.skip(), gr.skip(), gr.update(value=f'<p class="agon-notice" role="alert">{models}</p>')]
        first = [gr.update(choices=list(models), value=name) for name in (models[0], models[1 % len(models)])]
        return [*first, gr.skip()]

    page.load(fill, outputs=[*choices, parts.notice], concurrency_limit=None, **PRIVATE)


def open_named(
    a: str | None, b: str | None, uses_own: bool, temperature: float, top_p: float, max_tokens: float
) -> CreateBattle | str:
    if not a or not b:
        return texts.CHOOSE_MODEL
    if a == b:
        return texts.SAME_MODELS
    own = BattleSampling(temperature=temperature, top_p=top_p, max_tokens=int(max_tokens))
    return CreateBattle(mode="named", models=(a, b), sampling=None if uses_own else own)


async def served_models(client: ControllerClient, visitor: str) -> tuple[str, ...] | str:
    """The models that can be chosen now, or a sentence that says why there is none."""
    try:
        return await client.models(visitor) or texts.NO_MODELS
    except ControllerUnreachable:
        return texts.UNREACHABLE
    except ApiError as error:
        return texts.failure(error.code)
