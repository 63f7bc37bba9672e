"""The archive of transcripts: texts of voted battles, one file a day, so that the store need not keep them.

The archiver follows the vote log by itself; its position is the last line of its newest file, or a noted later one. A
battle gets a lifetime in the store only when its texts are on disk here. Files of past days are compressed. Texts of
votes that are imported, or restored after a wipe, are not here: their battles are not in the store.
"""

import asyncio
import contextlib
import fcntl
import gzip
import json
import os
import shutil
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from controller.battles.battle_record import Battle
from controller.battles.battle_store import BattleStore
from controller.store.keys import Keys
from controller.store.store import Store
from controller.votes.journal.journal_file import sync_folder
from controller.votes.vote_log import LogEntry, VoteLog
from wire.battles import SIDES, Side
from wire.chat import ChatMessage
from wire.entry_ids import LOG_START, EntryId, entry_order
from wire.errors import ApiError, ErrorCode
from wire.ids import BattleId

ROUND_S = 2.0
PIECE = 100  #: battles read and archived at once
COPY_BYTES = 2**20
TAIL_BYTES = 2**16

Conversations = dict[Side, tuple[ChatMessage, ...]]


@dataclass(frozen=True)
class Transcript:
    """The texts of one voted battle."""

    vote_id: str
    battle_id: str
    day: str  #: of the vote, in UTC
    conversations: Conversations

    def line(self) -> bytes:
        """The line of the file."""
        texts = {
            side: [message.model_dump(exclude_none=True) for message in messages]
            for side, messages in self.conversations.items()
        }
        fields = {"vote_id": self.vote_id, "battle_id": self.battle_id, "conversations": texts}
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class TranscriptFiles:
    """The files of one folder. Methods block on the disk. Several processes may read, one appends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock: IO[bytes] | None = None

    def lock(self) -> bool:
        """Become the writer, unless another process is; true also if this one is already. Raises OSError."""
        if self._lock is None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = open(self._folder / "writer.lock", "ab")  # noqa: SIM115 - held open as long as the lock
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                return False
            self._lock = file
        return True

    def unlock(self) -> None:
        """Stop being the writer."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def last_vote_id(self) -> str:
        """Vote id of the newest transcript, or the noted one if that is later; LOG_START where there is none. Cuts off
        a torn last line. Raises OSError, ValueError."""
        return max(self._last_transcript(), self._noted(), key=entry_order)

    def note(self, vote_id: str) -> None:
        """Votes up to this one have their texts here or nowhere. So a start does not read again what was imported.
        Raises OSError."""
        partial = self._folder / "position.part"
        partial.write_text(vote_id)
        partial.replace(self._folder / "position")

    def _noted(self) -> str:
        try:
            return EntryId((self._folder / "position").read_text())
        except (FileNotFoundError, ValueError):
            return LOG_START

    def _last_transcript(self) -> str:
        days = sorted({path.name.partition(".")[0] for path in self._folder.glob("????-??-??.jsonl*")})
        if not days:
            return LOG_START
        plain = self._path(days[-1])
        if plain.exists():
            _cut_torn_line(plain)
        last = next(iter(deque(self._lines(days[-1]), maxlen=1)), None)
        return LOG_START if last is None else str(json.loads(last)["vote_id"])

    def append(self, transcripts: Sequence[Transcript]) -> None:
        """Write transcripts and wait until they are on disk. Compresses the files of days before the last one.
        Raises OSError; then the same call may be made again, and readers take the last of equal lines."""
        by_day: dict[str, list[bytes]] = defaultdict(list)
        for transcript in transcripts:
            by_day[transcript.day].append(transcript.line())
        for day, lines in by_day.items():
            path = self._path(day)
            if path.exists():
                _cut_torn_line(path)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with open(descriptor, "ab") as file:
                file.write(b"".join(lines))
                file.flush()
                os.fdatasync(file.fileno())
        sync_folder(self._folder)
        for path in self._folder.glob("????-??-??.jsonl"):
            if path.name.partition(".")[0] < max(by_day, default=""):
                self._compress(path)

    def texts_of(self, day: str) -> dict[str, Conversations]:
        """Conversations of all battles that were voted on `day`, by battle id. Raises OSError, ValueError."""
        found: dict[str, Conversations] = {}
        for line in self._lines(day):
            fields = json.loads(line)
            texts = fields["conversations"]
            found[fields["battle_id"]] = {
                side: tuple(ChatMessage.model_validate(message) for message in texts[side]) for side in SIDES
            }
        return found

    def _lines(self, day: str) -> Iterator[bytes]:
        packed = self._path(day).with_suffix(".jsonl.gz")
        with contextlib.suppress(FileNotFoundError), gzip.open(packed) as lines:
            yield from lines
        with contextlib.suppress(FileNotFoundError), open(self._path(day), "rb") as plain:
            yield from (line for line in plain if line.endswith(b"\n"))

    def _path(self, day: str) -> Path:
        return self._folder / f"{day}.jsonl"

    def _compress(self, path: Path) -> None:
        """Add `path` to the compressed file of its day, as one more member, and remove it."""
        packed = path.with_suffix(".jsonl.gz")
        partial = path.with_suffix(".jsonl.part")
        with open(partial, "wb") as target:
            if packed.exists():
                with open(packed, "rb") as before:
                    shutil.copyfileobj(before, target, COPY_BYTES)
            with open(path, "rb") as source, gzip.GzipFile(fileobj=target, mode="wb") as member:
                shutil.copyfileobj(source, member, COPY_BYTES)
            target.flush()
            os.fsync(target.fileno())
        partial.chmod(0o600)
        partial.replace(packed)
        sync_folder(self._folder)
        path.unlink()


class Archiver:
    """Moves texts of voted battles from the store to the archive. Runs on the event loop, one round at a time.

    `ttl_s`: for how long the store keeps a battle after its texts are archived, 0 for ever; `shared_ttl_s`: one that is
    shared.
    """

    def __init__(
        self,
        store: Store,
        keys: Keys,
        log: VoteLog,
        battles: BattleStore,
        files: TranscriptFiles,
        *,
        ttl_s: float,
        shared_ttl_s: float,
    ) -> None:
        self._store = store
        self._keys = keys
        self._log = log
        self._battles = battles
        self._files = files
        self._ttl_ms = round(ttl_s * 1000)
        self._shared_ttl_ms = round(max(ttl_s, shared_ttl_s) * 1000)
        self._position: str | None = None  #: the last vote that was archived; None before the first round

    async def archive_round(self) -> None:
        """Archive every battle that was voted on since the last round, as background work. Raises OSError."""
        if not await asyncio.to_thread(self._files.lock):
            return  # another controller archives into this folder
        if self._position is None:
            self._position = await asyncio.to_thread(self._files.last_vote_id)
        with contextlib.suppress(ApiError):
            first = self._position
            while True:
                last_id, entries = await self._log.read_cast(EntryId(self._position))
                for start in range(0, len(entries), PIECE):
                    found = [(entry, await self._battle(entry)) for entry in entries[start : start + PIECE]]
                    with_texts = [(entry, battle) for entry, battle in found if battle is not None and battle.turns]
                    await self._archive(with_texts)
                if last_id == self._position:
                    break
                self._position = last_id
            if self._position != first:
                await asyncio.to_thread(self._files.note, self._position)

    def close(self) -> None:
        """Let another process archive."""
        self._files.unlock()

    async def _battle(self, entry: LogEntry) -> Battle | None:
        battle_id = BattleId.parse(entry.battle_id)
        if battle_id is None:  # imported or damaged
            return None
        try:
            return await self._battles.read(battle_id)
        except ApiError as error:
            if error.code is ErrorCode.BATTLE_NOT_FOUND:
                return None
            raise

    async def _archive(self, voted: Sequence[tuple[LogEntry, Battle]]) -> None:
        transcripts = [
            Transcript(entry.vote_id, entry.battle_id, day_of(entry.time_ms / 1000), conversations_of(battle))
            for entry, battle in voted
        ]
        if transcripts:
            await asyncio.to_thread(self._files.append, transcripts)
        if transcripts and self._ttl_ms:
            keys = [self._keys.battle(BattleId(transcript.battle_id)) for transcript in transcripts]
            await self._store.run("keep_battles", keys, self._ttl_ms, self._shared_ttl_ms)


def conversations_of(battle: Battle) -> Conversations:
    """All turns of a battle as chat messages, by side."""
    return {side: battle.history(side, len(battle.turns)) for side in SIDES}


def day_of(time_s: float) -> str:
    """The day in UTC whose file has the texts of a vote at Unix time `time_s`."""
    return time.strftime("%Y-%m-%d", time.gmtime(time_s))


def _cut_torn_line(path: Path) -> None:
    """Cut off what follows the last line break: the process died while it wrote. Reads from the end, because the file
    of a busy day is large and every append comes here."""
    with open(path, "r+b") as file:
        size = end = file.seek(0, os.SEEK_END)
        whole = 0
        while end and not whole:
            start = max(0, end - TAIL_BYTES)
            file.seek(start)
            whole = start + 1 + position if (position := file.read(end - start).rfind(b"\n")) >= 0 else 0
            end = start
        if whole < size:
            file.truncate(whole)
