"""Wire models as HTTP answers."""

from fastapi.responses import Response
from pydantic import BaseModel


def json_reply(model: BaseModel, status: int = 200) -> Response:
    """`model` as a JSON answer."""
    return Response(model.model_dump_json(), status, media_type="application/json")


def json_bytes_reply(body: bytes) -> Response:
    """JSON that was made before as an answer."""
    return Response(body, media_type="application/json")
