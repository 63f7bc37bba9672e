"""Registration, heartbeats and epochs, over HTTP."""

from typing import Any

import httpx
import pytest

from tests.controller.support.arena import WORKER_TOKEN, Arena, eventually
from tests.controller.support.fake_worker import FakeWorker
from wire.releases import RELEASE
from wire.workers import Load

HEADERS = {"Authorization": f"Bearer {WORKER_TOKEN}"}


def _worker(url: str = "http://127.0.0.1:9", boot_id: str = "boot-one", model: str = "alpha") -> FakeWorker:
    worker = FakeWorker(model)
    worker.url, worker.boot_id = url, boot_id
    return worker


async def _register(arena: Arena, worker: FakeWorker) -> httpx.Response:
    return await arena.client.post("/internal/workers", json=worker.registration().model_dump(), headers=HEADERS)


async def _beat(arena: Arena, worker_id: str, epoch: int, state: str = "ready") -> httpx.Response:
    beat = {"epoch": epoch, "state": state, "load": Load(running=3).model_dump()}
    return await arena.client.post(f"/internal/workers/{worker_id}/heartbeat", json=beat, headers=HEADERS)


async def test_registering_again_with_the_same_boot_id_changes_nothing(arena: Arena) -> None:
    first, second = [(await _register(arena, _worker())).json() for _ in range(2)]

    assert first == second
    assert first["lease_s"] == arena.settings.worker_lease_s


async def test_a_restarted_worker_gets_a_higher_epoch_and_fences_its_predecessor_off(arena: Arena) -> None:
    old = (await _register(arena, _worker(boot_id="boot-old"))).json()
    new = (await _register(arena, _worker(boot_id="boot-new"))).json()

    assert new["worker_id"] == old["worker_id"]
    assert new["epoch"] > old["epoch"]
    late = await _beat(arena, old["worker_id"], old["epoch"])
    assert (late.status_code, late.json()["error"]["code"]) == (409, "stale_epoch")
    assert (await _beat(arena, new["worker_id"], new["epoch"])).json() == {"known": True}


async def test_epochs_grow_even_when_the_store_has_lost_everything(arena: Arena) -> None:
    old = (await _register(arena, _worker(boot_id="boot-old"))).json()
    await arena.redis.delete(arena.keys.epoch, arena.keys.workers, arena.keys.worker(old["worker_id"]))

    assert (await _register(arena, _worker(boot_id="boot-new"))).json()["epoch"] > old["epoch"]


async def test_heartbeats_of_an_idle_worker_write_little_and_are_seen(arena: Arena) -> None:
    reply = (await _register(arena, _worker())).json()
    key = arena.keys.worker(reply["worker_id"])
    await _beat(arena, reply["worker_id"], reply["epoch"])
    written = await arena.redis.info("persistence")
    await _beat(arena, reply["worker_id"], reply["epoch"])
    grown = (await arena.redis.info("persistence"))["aof_current_size"] - written["aof_current_size"]
    assert 0 < grown < 300  # with the load it would be about 1,000
    assert await arena.redis.pttl(key) > 0.9 * 1000 * arena.settings.worker_lease_s
    [view] = (await arena.client.get("/arena/workers", headers=arena.admin)).json()
    assert view["last_heartbeat_age_s"] < 10


async def test_a_heartbeat_with_another_load_stores_it(arena: Arena) -> None:
    reply = (await _register(arena, _worker())).json()
    await _beat(arena, reply["worker_id"], reply["epoch"])
    beat = {"epoch": reply["epoch"], "state": "ready", "load": Load(running=4).model_dump()}
    await arena.client.post(f"/internal/workers/{reply['worker_id']}/heartbeat", json=beat, headers=HEADERS)
    stored = await arena.redis.hget(arena.keys.worker(reply["worker_id"]), "load")
    assert Load.model_validate_json(stored or "").running == 4


async def test_a_heartbeat_of_an_unknown_worker_says_so(arena: Arena) -> None:
    assert (await _beat(arena, "w-unknown", 1)).json() == {"known": False}


async def test_a_worker_that_falls_silent_is_gone_when_its_registration_expires(open_arena: Any) -> None:
    async with open_arena(worker_lease_s=0.8) as arena:
        worker = await arena.add_worker(FakeWorker("alpha"))
        worker.is_beating = False

        async def gone() -> bool:
            return not (await arena.client.get("/v1/models")).json()["data"]

        await eventually(gone)
        worker.is_beating = True  # it finds out with its next heartbeat and registers again

        async def back() -> bool:
            return not await gone()

        await eventually(back)


async def test_a_worker_cannot_take_its_successor_off_the_registry(arena: Arena) -> None:
    old = (await _register(arena, _worker(boot_id="boot-old"))).json()
    await _register(arena, _worker(boot_id="boot-new"))
    path = f"/internal/workers/{old['worker_id']}"

    late = await arena.client.delete(path, params={"epoch": old["epoch"]}, headers=HEADERS)

    assert late.status_code == 409
    assert len((await arena.client.get("/arena/workers")).json()) == 1
    assert (await arena.client.delete(path, headers=HEADERS)).status_code == 204
    assert (await arena.client.get("/arena/workers")).json() == []
    assert (await arena.client.delete(path, headers=HEADERS)).status_code == 204


async def test_a_draining_worker_gets_no_new_work(arena: Arena) -> None:
    reply = (await _register(arena, _worker())).json()

    await _beat(arena, reply["worker_id"], reply["epoch"], state="draining")

    async def no_longer_ready() -> bool:
        return not (await arena.client.get("/v1/models")).json()["data"]

    await eventually(no_longer_ready)
    [view] = (await arena.client.get("/arena/workers", headers=arena.admin)).json()
    assert (view["state"], view["load"]["running"]) == ("draining", 3)


@pytest.mark.parametrize("url", ["http://169.254.169.254", "http://10.0.0.5:8200", "http://127.0.0.1:8200/x"])
async def test_a_worker_at_an_address_that_is_not_allowed_is_refused(arena: Arena, url: str) -> None:
    response = await _register(arena, _worker(url))

    assert response.status_code in (400, 403)
    assert (await arena.client.get("/arena/workers")).json() == []


async def test_the_view_of_a_worker_shows_no_address(arena: Arena) -> None:
    worker = await arena.add_worker(FakeWorker("alpha"))

    text = (await arena.client.get("/arena/workers")).text

    assert worker.url not in text
    assert "127.0.0.1" not in text


async def test_only_the_admin_sees_how_busy_a_worker_is(arena: Arena) -> None:
    await arena.add_worker(FakeWorker("alpha"))
    figures = ("in_flight", "load", "last_heartbeat_age_s")
    headers: list[dict[str, str]] = [{}, HEADERS, {"Authorization": "Bearer nonsense"}]

    views = [(await arena.client.get("/arena/workers", headers=each)).json()[0] for each in headers]

    assert all(view[name] is None for view in views for name in figures)
    assert all(view["model"] == "alpha" and view["capacity"]["max_running"] for view in views)
    [shown] = (await arena.client.get("/arena/workers", headers=arena.admin)).json()
    assert all(shown[name] is not None for name in figures)


async def test_two_controllers_see_the_same_workers(arena: Arena) -> None:
    other = await arena.add_controller()
    await arena.add_worker(FakeWorker("alpha"))

    async def seen() -> bool:
        return [model["id"] for model in (await other.get("/v1/models")).json()["data"]] == ["alpha"]

    await eventually(seen)


@pytest.mark.parametrize("release", [None, "0.1.9", "99.2.0"])
async def test_a_worker_of_another_release_is_refused_by_a_sentence_with_both(
    arena: Arena, release: str | None
) -> None:
    worker = _worker()
    worker.version = release

    response = await _register(arena, worker)

    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, "invalid_request", "version")
    assert (release or "before 0.2") in error["message"]
    assert RELEASE in error["message"]
    assert (await arena.client.get("/arena/workers")).json() == []
