"""`agon join` without processes: how it watches a rank of a model over several machines."""

from pathlib import Path

import httpx

from cli.arena.child import ProbeResult
from cli.arena.data_dir import DataDir
from cli.join import headline, worker_spec
from model_worker.config import WorkerSettings

NOWHERE = "http://127.0.0.1:9/ready"


def rank(number: int) -> WorkerSettings:
    return WorkerSettings(
        model=("large=/models/large",),
        tensor_parallel=2,
        rank=number,
        master="10.0.0.2:29500",
        controller_urls=("http://10.0.0.1:8100",),
        worker_token="a-token-of-a-test",
    )


async def test_a_rank_without_a_port_is_ready_while_it_runs(tmp_path: Path) -> None:
    """Else it would be started for ever, and wait longer after each death."""
    async with httpx.AsyncClient(trust_env=False) as client:
        specs = [worker_spec(rank(number), [], DataDir(tmp_path), client, NOWHERE) for number in (0, 1)]
        assert [await spec.probe() for spec in specs] == [ProbeResult.SILENT, ProbeResult.READY]
        assert await headline(client, NOWHERE, rank(0)) == "starting large"
        assert await headline(client, NOWHERE, rank(1)) == "large: rank 1 of 2, with rank 0 at 10.0.0.2:29500"
