"""Wire models as HTTP answers."""

from fastapi.responses import Response
from pydantic import BaseModel


def json_reply(model: BaseModel, status: int = 200) -> Response:
    """`model` as a JSON answer."""
    return Response(model.model_dump_json(), status, media_type="application/json")
