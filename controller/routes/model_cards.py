"""Model cards over HTTP: the list for every visitor, changes for the administrator."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from controller.access.addresses import Addresses
from controller.access.rate_limits import RateLimiter
from controller.admin.action_log import ActionLog, actor_of
from controller.routes.replies import json_reply
from controller.votes.boards.model_cards import ModelCards
from service_kit.bodies import Bodies
from service_kit.route_docs import documented
from wire.errors import ApiError, ErrorCode
from wire.model_cards import BoardCard, BoardCards

CARD_EXAMPLE = {"model": "raven", "provider": "Example Lab", "released": "2026-05-01", "licence": "Apache-2.0"}


def add_model_cards_route(router: APIRouter, addresses: Addresses, limits: RateLimiter, cards: ModelCards) -> None:
    """Add the route that lists the cards."""

    @router.get("/arena/models")
    @documented(
        "Models",
        "List the model cards of the board",
        answer=BoardCards,
        errors=(ErrorCode.RATE_LIMITED, ErrorCode.STORE_UNAVAILABLE),
    )
    async def models(request: Request) -> Response:
        """Models with a card, also those that have no worker yet or are retired."""
        await limits.check(addresses.of(request), "board")
        return json_reply(cards.view())


def add_model_card_admin_route(
    router: APIRouter, bodies: Bodies, cards: ModelCards, addresses: Addresses, actions: ActionLog
) -> None:
    """Add the route that changes a card."""

    @router.put("/arena/models/{model:path}/card")
    @documented(
        "Models",
        "Write the card of a model",
        parameters={
            "model": "name of the model; it may hold slashes",
            "reason": "why; it is kept in the log of actions",
        },
        request=BoardCard,
        example=CARD_EXAMPLE,
        answer=BoardCard,
        errors=(ErrorCode.STORE_UNAVAILABLE,),
    )
    async def put_card(request: Request, model: str, reason: Annotated[str, Query(max_length=500)] = "") -> Response:
        """Replaces the card; the model is listed on the boards from then on, and stays listed. With a date in
        `retired` it gets no battles from that day (UTC) on. `submitted` is the time of the first card, whatever the
        request says."""
        card = await bodies.parse(request, BoardCard)
        if card.model != model:
            raise ApiError(ErrorCode.INVALID_REQUEST, "The card names another model than the path.", param="model")
        values = card.model_dump(mode="json", exclude={"model"}, exclude_none=True)
        await actions.append(actor_of(request, addresses), "put_card", model, values, reason)
        return json_reply(await cards.put(card))
