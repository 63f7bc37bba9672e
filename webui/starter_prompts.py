"""The prompts that a page offers to begin with: they fit the models that are served now and the visitor's language.

The operator's file goes first, then the model cards of the served models, then the built-in ones: in the visitor's
language where the cards say that all of these models answer in it, else in English.
"""

import tomllib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import chain, zip_longest
from pathlib import Path
from typing import Annotated, Any, Final

import gradio as gr
from pydantic import BaseModel, ConfigDict, Field

from webui import texts
from webui.boards import Shared
from webui.client import ControllerClient
from webui.languages import COOKIE, DEFAULT, LANGUAGES, active, speaking
from webui.visitors import Visitor, visitor_of
from webui.widgets import PRIVATE
from wire.model_cards import MAX_STARTER_CHARS, BoardCards

NUM_STARTERS: Final = 6  #: buttons of a page

_Text = Annotated[str, Field(min_length=1, max_length=MAX_STARTER_CHARS)]


class StarterPrompt(BaseModel):
    """One prompt of the operator's file. It is offered while a model is served whose name matches one of `models`
    (`*` stands for any characters; none: always), to visitors of this language (none: to all)."""

    text: _Text
    models: tuple[str, ...] = ()
    language: str | None = Field(default=None, pattern="^[a-z]{2}$")

    model_config = ConfigDict(extra="forbid", frozen=True)

    def fits(self, served: Iterable[str], language: str) -> bool:
        """Whether it is offered to a visitor of this language while these models are served."""
        if self.language is not None and self.language != language:
            return False
        return not self.models or any(fnmatchcase(name, pattern) for name in served for pattern in self.models)


class _File(BaseModel):
    prompts: tuple[StarterPrompt, ...] = Field(max_length=1000)

    model_config = ConfigDict(extra="forbid", frozen=True)


def read_file(path: Path | None) -> tuple[StarterPrompt, ...]:
    """The prompts of a file in TOML, a table `[[prompts]]` for each. Raises ValueError for a file that is none."""
    return () if path is None else _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))).prompts


def built_in(language: str) -> tuple[str, ...]:
    """The built-in prompts in a language of the pages."""
    with speaking(language):
        return texts.EXAMPLES


class StarterPrompts:
    """Chooses the prompts of a page. `prompts`: those of the operator's file; `max_age_s`: seconds between two requests
    for the models and their cards."""

    def __init__(
        self, client: ControllerClient, prompts: tuple[StarterPrompt, ...] = (), *, max_age_s: float = 10.0
    ) -> None:
        self._prompts = prompts
        self._models: Shared[tuple[str, ...]] = Shared(client.models, max_age_s)
        self._cards: Shared[BoardCards] = Shared(client.cards, max_age_s)

    async def of(self, visitor: Visitor, language: str) -> tuple[str, ...]:
        """Up to NUM_STARTERS prompts. While the controller is away, those that need to know no model."""
        served = await self._models.known(visitor) or ()
        fitting = [prompt for prompt in self._prompts if prompt.fits(served, language)]
        fitting.sort(key=lambda prompt: (prompt.language is None, not prompt.models))  # the most specific first
        if fitting:
            return tuple(dict.fromkeys(prompt.text for prompt in fitting))[:NUM_STARTERS]
        cards = await self._cards.known(visitor)
        of_served = [card for card in (cards.models if cards else ()) if card.model in served]
        chosen = _in_turn([card.starter_prompts for card in of_served])[:NUM_STARTERS]
        speaking_it = {card.model for card in of_served if language in card.languages}
        is_spoken = language in LANGUAGES and bool(served) and speaking_it.issuperset(served)
        return chosen or built_in(language if is_spoken else DEFAULT)

    def bind(self, page: Any, buttons: Sequence[gr.Button]) -> None:
        """Fill the buttons of a page when it is loaded."""

        async def fill(request: gr.Request) -> list[Any]:
            chosen = await self.of(visitor_of(request), language_of(request))
            if chosen == built_in(DEFAULT):
                return [gr.skip() for _ in buttons]  # the page was built with them
            shown = [gr.update(value=text, visible=True) for text in chosen[: len(buttons)]]
            return [*shown, *(gr.update(visible=False) for _ in buttons[len(shown) :])]

        page.load(fill, outputs=list(buttons), concurrency_limit=None, **PRIVATE)


def language_of(request: gr.Request) -> str:
    """The language that the visitor has chosen, else the first that their browser asks for, ISO 639-1: also one that no
    page is written in."""
    if request.cookies.get(COOKIE) in LANGUAGES:
        return active()
    accepted = request.headers.get("accept-language", "") if request.headers else ""
    code = accepted.split(",")[0].split(";")[0].split("-")[0].strip().lower()
    return code if len(code) == 2 and code.isascii() and code.isalpha() else active()


def _in_turn(lists: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """The first of each list, then the second of each, without repetitions: every model gets its turn."""
    mixed = chain.from_iterable(zip_longest(*lists))
    return tuple(dict.fromkeys(prompt for prompt in mixed if prompt is not None))
