"""The judge: one controller at a time looks for votes that should not count, and appends judgements to the log.

The rules run in a thread over the vote table of the boards, so a judge that starts reads no more of the log than the
boards do. What has been judged is noted in the store with the result, where the next judge goes on. Two judges at once
do no harm: the log knows a judgement by its key.
"""

import asyncio
import contextlib
import logging
import secrets
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final

import numpy as np
from pydantic import BaseModel

from controller.store.keys import Keys
from controller.store.store import Store, unavailable
from controller.votes.boards.leaderboards import Leaderboards
from controller.votes.boards.vote_table import TableSnapshot, number_of
from controller.votes.integrity.findings import Finding, Round, Rules, as_judgement, integrity_view, judge_votes
from controller.votes.journal.follower import VoteJournal
from controller.votes.vote_log import LogEntry, LogState, VoteLog
from service_kit.cancellation import cancel
from service_kit.logs import log_event
from wire.entry_ids import LOG_START, EntryId, entry_order
from wire.errors import ApiError
from wire.judgements import CastJudgement, IntegrityView, Judgement
from wire.votes import JUDGEMENT_PREFIX

LEASE_MS: Final = 30_000  #: a judge that died is replaced after this time
_RENEWAL_S: Final = LEASE_MS / 3000
_APPENDED_AT_ONCE: Final = 20  #: judgements; one may name a thousand battles
_PASSES: Final = 3

_logger = logging.getLogger(__name__)


class Judge:
    """Runs rounds on the event loop of one controller, as background work, while it holds the lease. Owns the keys
    `judge` and `integrity`.

    `clock` gives Unix time of the store. `journal`: what must hold a judgement of an administrator, besides the store.
    """

    def __init__(
        self,
        store: Store,
        keys: Keys,
        log: VoteLog,
        boards: Leaderboards,
        journal: VoteJournal | None,
        rules: Rules,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._keys = keys
        self._log = log
        self._boards = boards
        self._journal = journal
        self._rules = rules
        self._clock = clock
        self._id = secrets.token_hex(8)

    async def judge_round(self) -> None:
        """Judge what has come since the last round, if this controller is the judge. A store that is away is no
        error."""
        with contextlib.suppress(ApiError):
            if await self._holds():
                votes, log = await self._boards.votes()
                before = await self._noted()
                if before is not None and before.seen == _seen(votes, log):
                    return
                is_same = before is not None and (before.token, before.view.rules) == (
                    log.token,
                    self._rules.as_numbers(),
                )
                since = _judged_rows(votes, before.last_id) if before is not None and is_same else 0
                await self._judge(votes, log, since)

    async def view(self) -> IntegrityView:
        """The result of the last round of any controller's judge. Raises ApiError STORE_UNAVAILABLE."""
        noted = await self._noted()
        if noted is not None:
            return noted.view
        return IntegrityView(
            num_votes=0,
            num_rated=0,
            unrated={},
            voters_judged=0,
            voters_flagged=0,
            judged_at=None,
            judged_up_to=None,
            rules=self._rules.as_numbers(),
        )

    async def append(self, wanted: CastJudgement) -> Judgement:
        """Append the judgement of an administrator; returns it when it is on disk. Raises ApiError
        STORE_UNAVAILABLE: then it is unknown whether it was appended, and it may be sent again."""
        values = wanted.model_dump() | {"judgement_id": "", "time": 0, "by": "admin"}
        judgement = Judgement.model_validate({**values, "key": JUDGEMENT_PREFIX + secrets.token_hex(16)})
        ids = await self._log.append_judgements([judgement])
        assert ids is not None  # no entry was required to be there
        if self._journal is not None:
            await self._journal.catch_up()
        entries = await self._log.entries(ids)
        if not entries or entries[0].is_damaged:
            raise unavailable()
        log_event(_logger, "judged_by_admin", flag=wanted.flag, action=wanted.action)
        return entries[0].judgement

    async def close(self) -> None:
        """Let another controller be the judge at once."""
        with contextlib.suppress(ApiError):
            await self._store.run("leave_judge", [self._keys.judge], self._id)

    async def _holds(self) -> bool:
        return bool(await self._store.run("hold_judge", [self._keys.judge], self._id, LEASE_MS))

    async def _noted(self) -> "_Noted | None":
        with self._store.guard("get"):
            text = await self._store.redis.get(self._keys.integrity)
        try:
            return _Noted.model_validate_json(text) if text else None
        except ValueError:
            return None  # damaged, or from another release: the next round begins anew

    async def _judge(self, votes: TableSnapshot, log: LogState, since: int) -> None:
        """Judge the votes from row `since` on; again without the votes of those who were found, because they have moved
        the fit that others are compared with."""
        num_judged, last_id = votes.num_votes, votes.last_vote_id
        for _ in range(_PASSES):
            async with self._renewing():
                result = await self._round(votes, since)
            if result.findings and not await self._append(votes, result.findings):
                return
            if result.findings:
                log_event(_logger, "judged", judgements=len(result.findings), votes=num_judged - since)
                votes, now = await self._boards.votes()
                if now.token != log.token:
                    return
            if not any(finding.flag in ("anomalous_voter", "anomalous_cohort") for finding in result.findings):
                break
        view = integrity_view(votes, self._rules, num_voters=result.num_voters, judged_at=self._clock())
        is_all = votes.num_votes == num_judged  # no votes came while this round ran
        noted = _Noted(
            token=log.token,
            last_id=last_id,
            seen=_seen(votes, log) if is_all else (),
            view=view.model_copy(update={"judged_up_to": last_id}),
        )
        with self._store.guard("set"):
            await self._store.redis.set(self._keys.integrity, noted.model_dump_json())

    async def _round(self, votes: TableSnapshot, since: int) -> Round:
        """Run the rules in a thread, which ends soon after a cancellation: after an import of millions of votes a round
        takes minutes, for which no shutdown may wait."""
        stopped = threading.Event()
        try:
            return await asyncio.to_thread(judge_votes, votes, self._rules, since=since, is_stopped=stopped.is_set)
        finally:
            stopped.set()

    async def _append(self, votes: TableSnapshot, findings: Sequence[Finding]) -> bool:
        """Append the findings to the log; False if another controller is the judge now, or the log has lost votes."""
        for start in range(0, len(findings), _APPENDED_AT_ONCE):
            if not await self._holds():
                return False
            judgements = await self._judgements(votes, findings[start : start + _APPENDED_AT_ONCE])
            if await self._log.append_judgements(judgements, after=votes.last_vote_id or LOG_START) is None:
                return False  # the journal brings the votes back first
        if self._journal is not None:
            await self._journal.catch_up()
        return True

    async def _judgements(self, votes: TableSnapshot, findings: Sequence[Finding]) -> list[Judgement]:
        """The findings with the names that the table does not hold: they are read from the log."""
        rows = np.unique(np.concatenate([finding.rows for finding in findings]))
        ids = [f"{votes.columns['entry_ms'][row]}-{votes.columns['entry_number'][row]}" for row in rows.tolist()]
        found: dict[int, LogEntry] = {}
        for entry in await self._log.entries(ids):
            if entry.is_vote:
                found[number_of(entry.battle_id)] = entry
        judgements = []
        for finding in findings:
            battles = votes.columns["battle"][finding.rows].tolist()
            entries = [found[battle] for battle in battles if battle in found]
            if len(entries) < min(len(battles), 1):
                continue  # restored meanwhile: the next round finds it again
            voter = entries[0].vote.voter if finding.is_about_voter else None
            named = () if finding.is_about_voter else tuple(entry.battle_id for entry in entries)
            if voter or named or finding.cohort:
                judgements.append(as_judgement(finding, battle_ids=named, voter=voter))
        return judgements

    @contextlib.asynccontextmanager
    async def _renewing(self) -> AsyncGenerator[None, None]:
        """Renew the lease while the rules run: the first round over a long log takes longer than it."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(_RENEWAL_S)
                with contextlib.suppress(ApiError):
                    await self._holds()

        task = asyncio.create_task(renew())
        try:
            yield
        finally:
            await cancel(task)


class _Noted(BaseModel):
    """What the last judge left in the store."""

    token: str  #: of the log's last restoration
    last_id: str | None  #: the last entry of the log that was judged
    seen: tuple[str | int, ...]  #: `_seen` after the round
    view: IntegrityView


def _seen(votes: TableSnapshot, log: LogState) -> tuple[str | int, ...]:
    """Equal as long as there is nothing to judge."""
    return log.token, votes.num_votes, len(votes.verdicts)


def _judged_rows(votes: TableSnapshot, last_id: str | None) -> int:
    """How many votes of the table stand up to the entry `last_id`."""
    if last_id is None:
        return 0
    milliseconds, number = entry_order(EntryId(last_id))
    ms, numbers = votes.columns["entry_ms"], votes.columns["entry_number"]
    first = int(np.searchsorted(ms, milliseconds, side="left"))
    last = int(np.searchsorted(ms, milliseconds, side="right"))
    return first + int(np.count_nonzero(numbers[first:last] <= number))
