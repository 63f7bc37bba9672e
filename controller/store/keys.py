"""Every Redis key of the arena and how long it lives, each with its reason.

One Redis, no cluster: the vote script touches a battle and the vote log in one step, which a cluster would split. Times
inside values are Redis TIME in milliseconds; no controller's clock decides anything.
"""

from dataclasses import dataclass

#: A set of slots outlives its last lease by this much, so that a worker that left does not leave a key behind.
SLOTS_GRACE_MS = 60_000
#: Events serve browsers that come back after a dropped connection; the transcript itself is in the battle.
EVENTS_TTL_MS = 3_600_000


@dataclass(frozen=True)
class Keys:
    prefix: str

    @property
    def epoch(self) -> str:
        """String: the last epoch given to a worker. No TTL: epochs must grow for ever."""
        return f"{self.prefix}:epoch"

    @property
    def workers(self) -> str:
        """Sorted set: worker id -> end of its lease. Swept whenever a routing table is read."""
        return f"{self.prefix}:workers"

    @property
    def worker_prefix(self) -> str:
        return f"{self.prefix}:worker:"

    def worker(self, worker_id: str) -> str:
        """Hash: registration, state and load. TTL = the lease, renewed by each heartbeat: a dead worker vanishes."""
        return self.worker_prefix + worker_id

    @property
    def models(self) -> str:
        """Hash: model name -> its last card. No TTL: boards show models whose workers are away."""
        return f"{self.prefix}:models"

    @property
    def slots_prefix(self) -> str:
        return f"{self.prefix}:slots:"

    def slots(self, worker_id: str) -> str:
        """Sorted set: lease id -> its end. Counted, never incremented: what a crashed controller held runs out."""
        return self.slots_prefix + worker_id

    def battle(self, battle_id: str) -> str:
        """Hash: all of a battle. TTL from its last turn; kept (or given another TTL) once voted."""
        return f"{self.prefix}:battle:{battle_id}"

    def events(self, battle_id: str) -> str:
        """Stream: the events of a battle's turns, entry ids `turn-n` = SSE ids. TTL EVENTS_TTL_MS."""
        return f"{self.prefix}:battle:{battle_id}:events"

    @property
    def votes(self) -> str:
        """Stream: the vote log, the truth of the arena. No TTL, never trimmed."""
        return f"{self.prefix}:votes"

    @property
    def logged_battles(self) -> str:
        """Set: ids of the battles in the vote log, voted here or imported. No TTL: neither a second import of a file
        nor the import of this arena's own export may count a vote twice."""
        return f"{self.prefix}:logged"

    def rate(self, kind: str, identity: str) -> str:
        """String: theoretical arrival time in microseconds. TTL = until the bucket is full again."""
        return f"{self.prefix}:rate:{kind}:{identity}"
