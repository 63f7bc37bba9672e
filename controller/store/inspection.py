"""What a store says of itself: whether it keeps what it acknowledges, and who follows it."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from redis.exceptions import ResponseError

from controller.store.store import Store

#: With these settings "acknowledged" means "on disk", and votes are never evicted.
NEEDED = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
LEAST_VERSION = (7, 0)  #: multi-part append-only files
LEAST_REPLICATED_VERSION = (7, 2)  #: WAITAOF


@dataclass(frozen=True, slots=True)
class Inspection:
    """One look at a store. `wrong`: settings that differ from NEEDED, None where the store does not tell."""

    version: str
    role: str
    num_replicas: int  #: connected and in step
    wrong: Mapping[str, str] | None
    is_writing: bool  #: whether its last write to the append-only file and the last snapshot went well

    def problems(self, *, num_replicas: int) -> list[str]:
        """Sentences about what may lose votes; num_replicas: how many a vote must reach."""
        numbers = tuple(int(part) for part in self.version.split(".")[:2])
        least = LEAST_REPLICATED_VERSION if num_replicas else LEAST_VERSION
        found = []
        if numbers < least:
            found.append(f"version {self.version} is older than {least[0]}.{least[1]}")
        if self.role != "master":
            found.append(f"the server is a {self.role}: it takes no writes")
        found += [f"{name} is {value!r}, not {NEEDED[name]!r}" for name, value in (self.wrong or {}).items()]
        if not self.is_writing:
            found.append("the last write to its disk has failed")
        if self.num_replicas < num_replicas:
            found.append(
                f"{self.num_replicas} replicas follow it, and a vote needs {num_replicas}: none is acknowledged"
            )
        elif 0 < num_replicas < self.num_replicas:  # a fail-over may choose a replica that has less than another
            found.append(
                f"{self.num_replicas} replicas follow it, and a vote waits for {num_replicas}: a fail-over may lose "
                f"votes (AGON_VOTE_REPLICAS={self.num_replicas})"
            )
        return found


async def inspect(store: Store) -> Inspection:
    """Look at the store. Raises ApiError STORE_UNAVAILABLE."""
    with store.guard("inspect"):
        server = await store.redis.info("server")
        disk = await store.redis.info("persistence")
        replication = await store.redis.info("replication")
        wrong: dict[str, str] | None = None
        with contextlib.suppress(ResponseError):  # hosted stores often forbid CONFIG
            found = {name: str((await store.redis.config_get(name)).get(name)) for name in NEEDED}
            wrong = {name: value for name, value in found.items() if value != NEEDED[name]}
    followers = (replication.get(f"slave{number}") for number in range(int(replication["connected_slaves"])))
    return Inspection(
        version=str(server.get("valkey_version") or server["redis_version"]),
        role=str(replication["role"]),
        num_replicas=sum(isinstance(one, dict) and one.get("state") == "online" for one in followers),
        wrong=wrong,
        is_writing=disk.get("aof_last_write_status", "ok") == "ok",
    )
