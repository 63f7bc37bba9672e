"""The curl lines that docs/api.md gives for a worker."""

from collections.abc import Callable

import httpx
import pytest

from model_worker.app import create_app
from model_worker.config import WorkerSettings
from model_worker.models import Models
from tests.api_page import curl_lines, parse_curl
from tests.model_worker.conftest import client_of
from tests.model_worker.echo_host import EchoHost

SERVER = "http://127.0.0.1:8200"


@pytest.mark.parametrize("line", curl_lines(SERVER))
async def test_curl_line_works(
    in_process: Callable[..., httpx.AsyncClient], make_settings: Callable[..., WorkerSettings], line: str
) -> None:
    request = parse_curl(line, SERVER, {"WORKER_TOKEN": "worker-token-for-tests"})
    if "/internal/models" in line:
        models = Models(make_settings(model=("raven=echo", "robin=echo"), engine="paged"), host=EchoHost())
        await models.start()
        client = client_of(
            "http://127.0.0.1", transport=httpx.ASGITransport(create_app(models.settings, models=models))
        )
    else:
        client = in_process(model="raven=echo", api_docs=True)
    async with client:
        del client.headers["authorization"]  # the line brings what it needs
        del client.headers["content-type"]

        answer = await client.request(request.method, request.path, headers=request.headers, content=request.content)

    assert answer.status_code == (202 if "/remove" in line or '"source"' in line else 200), answer.text
