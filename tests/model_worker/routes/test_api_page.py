"""The curl lines that docs/api.md gives for a worker."""

from collections.abc import Callable

import httpx
import pytest

from tests.api_page import curl_lines, parse_curl

SERVER = "http://127.0.0.1:8200"


@pytest.mark.parametrize("line", curl_lines(SERVER))
async def test_curl_line_works(in_process: Callable[..., httpx.AsyncClient], line: str) -> None:
    request = parse_curl(line, SERVER, {"WORKER_TOKEN": "worker-token-for-tests"})
    async with in_process(model="raven=echo", api_docs=True) as client:
        del client.headers["authorization"]  # the line brings what it needs
        del client.headers["content-type"]

        answer = await client.request(request.method, request.path, headers=request.headers, content=request.content)

    assert answer.status_code == 200, answer.text
