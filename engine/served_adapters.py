"""The adapters of a running engine by name: which slot each has, how many requests use it, and which are leaving.

Owned by the core, in the engine's thread. Knows no torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

from engine.adapter_info import AdapterInfo
from engine.batch import NO_ADAPTER
from engine.errors import AdapterError, InvalidRequest


class Rack(Protocol):
    """Where adapters' matrices lie: slots [1, num_slots]."""

    @property
    def num_slots(self) -> int:
        """How many adapters can be loaded at a time."""
        ...

    def load(self, slot: int, folder: Path) -> AdapterInfo:
        """Put an adapter into a slot. Raises AdapterError, and changes nothing then."""
        ...

    def unload(self, slot: int) -> None:
        """Empty a slot."""
        ...


@dataclass(slots=True)
class _Served:
    slot: int
    folder: Path
    info: AdapterInfo
    num_open: int = 0  #: requests that have not ended
    on_gone: Callable[[], None] | None = None  #: not None: it takes no new requests


class ServedAdapters:
    """Names to slots."""

    def __init__(self, rack: Rack | None) -> None:
        """rack: None: no adapter can be loaded."""
        self._rack = rack
        self._by_name: dict[str, _Served] = {}
        self._by_slot: dict[int, str] = {}

    @property
    def infos(self) -> dict[str, AdapterInfo]:
        """The adapters that take requests."""
        return {name: served.info for name, served in self._by_name.items() if served.on_gone is None}

    def add(self, name: str, folder: Path) -> AdapterInfo:
        """Load an adapter. Raises AdapterError where the name is taken, no slot is free, or the folder does not fit."""
        if not name:
            raise AdapterError("an adapter needs a name")
        if self._rack is None:
            raise AdapterError("the engine was started without room for adapters: set max_adapters")
        if name in self._by_name:
            leaving = "is still answering its last requests" if self._by_name[name].on_gone else "is loaded already"
            raise AdapterError(f"the adapter {name!r} {leaving}")
        free = [slot for slot in range(1, self._rack.num_slots + 1) if slot not in self._by_slot]
        if not free:
            raise AdapterError(f"all {self._rack.num_slots} places for adapters are taken: see max_adapters")
        info = self._rack.load(free[0], folder)
        self._by_name[name] = _Served(free[0], folder, info)
        self._by_slot[free[0]] = name
        return info

    def remove(self, name: str, on_gone: Callable[[], None]) -> None:
        """Take no new requests for an adapter, and unload it when its last one has ended; on_gone is called then, which
        may be now. Raises AdapterError for a name that takes no requests."""
        served = self._by_name.get(name)
        if served is None or served.on_gone is not None:
            raise AdapterError(f"no adapter {name!r} is loaded")
        served.on_gone = on_gone
        if not served.num_open:
            self._unload(name)

    def use_rack(self, rack: Rack | None) -> None:
        """Load all adapters again, into their slots of another rack of the same model, which has been away. Raises
        AdapterError where a folder has changed meanwhile: its pages and answers would be mixed up."""
        assert rack is not None or not self._by_name
        for name, served in self._by_name.items():
            assert rack is not None
            if rack.load(served.slot, served.folder).digest != served.info.digest:
                raise AdapterError(f"the adapter {name!r} in {served.folder} has changed since it was loaded")
        self._rack = rack

    def check(self, name: str) -> None:
        """Raise InvalidRequest for an adapter that takes no requests. An empty name is the base alone."""
        if name and ((served := self._by_name.get(name)) is None or served.on_gone is not None):
            raise InvalidRequest(f"no adapter {name!r} is loaded", param="adapter")

    def open(self, name: str) -> int:
        """The slot for a request of the adapter, which holds it until `close`. An empty name: NO_ADAPTER."""
        if not name:
            return NO_ADAPTER
        served = self._by_name[name]
        served.num_open += 1
        return served.slot

    def close(self, slot: int) -> None:
        """A request that has the slot has ended."""
        if slot == NO_ADAPTER:
            return
        name = self._by_slot[slot]
        served = self._by_name[name]
        served.num_open -= 1
        if not served.num_open and served.on_gone is not None:
            self._unload(name)

    def salt(self, name: str, cache_salt: bytes) -> bytes:
        """The salt of pages: an adapter's are shared neither with the base's nor with another adapter's."""
        if not name:
            return cache_salt
        digest = bytes.fromhex(self._by_name[name].info.digest)
        return blake2b(digest + cache_salt, person=b"adapter pages").digest()

    def _unload(self, name: str) -> None:
        assert self._rack is not None
        served = self._by_name.pop(name)
        del self._by_slot[served.slot]
        self._rack.unload(served.slot)
        assert served.on_gone is not None
        served.on_gone()
