"""From the fields of a form of the admin page to a request of the controller."""

from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, urlencode

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from wire.admin import CreateNotice, DrainWorker, SetModel, SetTerms
from wire.errors import ApiError, ErrorCode
from wire.ids import NoticeId, WorkerId
from wire.judgements import CastJudgement
from wire.model_cards import BoardCard
from wire.model_names import is_model_name
from wire.served_models import AdminActOnModel, AdminAddModel

_CARD_FIELDS = ("provider", "licence", "released")

FormName = Literal[
    "set_model",
    "put_card",
    "retire_model",
    "drain_worker",
    "add_notice",
    "remove_notice",
    "set_terms",
    "judge_votes",
    "add_served",
    "act_served",
]


class Act(BaseModel):
    """Body of `POST /admin/act`: a form and its fields; a box that is not ticked has none."""

    act: FormName
    fields: dict[str, str] = Field(max_length=16)

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class AdminRequest:
    """One request to the controller."""

    method: str
    path: str
    body: BaseModel | None = None


def request_of(act: Act) -> AdminRequest:
    """What the form asks for. Raises ApiError INVALID_REQUEST."""
    try:
        return _request(act)
    except (ValidationError, KeyError, ValueError):
        raise ApiError(ErrorCode.INVALID_REQUEST, "A field of the form is missing or out of bounds.") from None


def _request(act: Act) -> AdminRequest:
    fields = act.fields
    reason = fields.get("reason", "")
    match act.act:
        case "set_model":
            wanted = SetModel(is_on="is_on" in fields, weight=float(fields["weight"]), reason=reason)
            return AdminRequest("PUT", f"/arena/admin/models/{_model(fields['model'])}", wanted)
        case "put_card":
            given = {name: fields[name].strip() or None for name in _CARD_FIELDS if name in fields}
            return _put_card(BoardCard.model_validate({"model": fields["model"].strip(), **given}), reason)
        case "retire_model":
            return _put_card(BoardCard.model_validate_json(fields["card"]), reason)
        case "drain_worker":
            drain = DrainWorker(is_drained=bool(fields["is_drained"]), reason=reason)
            return AdminRequest("POST", f"/arena/admin/workers/{WorkerId(fields['worker_id'])}/drain", drain)
        case "add_served":
            added = AdminAddModel(
                name=fields["name"].strip(),
                source=fields["source"].strip(),
                worker=fields.get("worker") or None,
                reason=reason,
            )
            return AdminRequest("POST", "/arena/admin/served", added)
        case "act_served":
            wanted_of_it = AdminActOnModel.model_validate(
                {
                    "name": fields["name"],
                    "action": fields["action"],
                    "worker": fields["worker"],
                    "to": fields.get("to") or None,
                    "reason": reason,
                }
            )
            return AdminRequest("POST", "/arena/admin/served/act", wanted_of_it)
        case "add_notice":
            notice = CreateNotice.model_validate(
                {
                    "text": fields["text"],
                    "severity": fields["severity"],
                    "starts": _seconds(fields.get("starts", "")),
                    "ends": _seconds(fields.get("ends", "")),
                    "reason": reason,
                }
            )
            return AdminRequest("POST", "/arena/admin/notices", notice)
        case "remove_notice":
            query = urlencode({"reason": reason})
            return AdminRequest("DELETE", f"/arena/admin/notices/{NoticeId(fields['notice_id'])}?{query}")
        case "set_terms":
            return AdminRequest("PUT", "/arena/admin/terms", SetTerms(text=fields["text"], reason=reason))
        case "judge_votes":
            subject = (
                {"voter": fields["voter"]} if fields["scope"] == "voter" else {"battle_ids": [fields["battle_id"]]}
            )
            judgement = CastJudgement.model_validate({"action": fields["action"], "note": reason or None, **subject})
            return AdminRequest("POST", "/arena/integrity/judgements", judgement)


def _put_card(card: BoardCard, reason: str) -> AdminRequest:
    query = urlencode({"reason": reason})
    return AdminRequest("PUT", f"/arena/models/{_model(card.model)}/card?{query}", card)


def _model(text: str) -> str:
    """A model's name as a part of a path, which may hold slashes. Raises ValueError."""
    if not is_model_name(text) or ".." in text:
        raise ValueError("no name of a model")
    return quote(text)


def _seconds(text: str) -> float | None:
    return float(text) if text else None
