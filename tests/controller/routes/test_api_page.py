"""The curl lines that docs/api.md gives for the controller."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from tests.api_page import curl_lines, parse_curl
from tests.controller.support.arena import ADMIN_TOKEN, WORKER_TOKEN, Arena
from tests.controller.support.fake_worker import FakeWorker

SERVER = "http://127.0.0.1:8100"
VOTE = '{"vote_id":"1-0","battle_id":"elsewhere","time":1,"mode":"anonymous","outcome":"a","a":{"model":"raven",'
VOTE += '"revision":"0"},"b":{"model":"robin","revision":"0"}}'


@pytest.mark.parametrize("line", curl_lines(SERVER))
async def test_curl_line_works(open_arena: Callable[..., AbstractAsyncContextManager[Arena]], line: str) -> None:
    async with open_arena(api_docs=True) as arena:
        workers = [await arena.add_worker(FakeWorker(model)) for model in ("raven", "robin")]
        battle = await arena.create()
        await arena.turn(battle["id"])
        ada = await arena.client.post("/arena/voters/invitations", json={"name": "ada"}, headers=arena.admin)
        variables = {
            "INVITATION": ada.json()["token"],
            "BATTLE": battle["id"],
            "WORKER_TOKEN": WORKER_TOKEN,
            "ADMIN_TOKEN": ADMIN_TOKEN,
            "WORKER": workers[0].worker_id,
            "EPOCH": str(workers[0].epoch),
        }
        if "share" in line or "feedback" in line:
            await arena.vote(battle["id"])
        if "share" in line:
            share = await arena.client.post(f"/arena/battles/{battle['id']}/share")
            variables["SHARE"] = share.json()["share_id"]
        if "$CHAT" in line:
            chat = await arena.client.post("/arena/chats", json={"model": "raven"})
            variables["CHAT"] = chat.json()["id"]
        if "regenerate" in line and "$CHAT" in line:
            await arena.events("POST", f"/arena/chats/{variables['CHAT']}/turns", json={"content": "hello"})
        if "$NOTICE" in line:
            notice = {"text": "Soon.", "severity": "info", "reason": "news"}
            answer = await arena.client.post("/arena/admin/notices", json=notice, headers=arena.admin)
            variables["NOTICE"] = answer.json()["id"]
        if "$TERMS" in line:
            terms = {"text": "Be kind.", "reason": "from now on"}
            await arena.client.put("/arena/admin/terms", json=terms, headers=arena.admin)
            variables["TERMS"] = (await arena.client.get("/arena/terms")).json()["version"]
        request = parse_curl(line, SERVER, variables)
        content = VOTE if request.content == "@votes.ndjson" else request.content

        answer = await arena.client.request(request.method, request.path, headers=request.headers, content=content)

        assert answer.is_success, answer.text
