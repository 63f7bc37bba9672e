"""The leaderboards: exact fits of folds of the vote log, for the live page and for `agon leaderboard --recompute`.

Each controller folds new votes into counts of its own process, and fits again in a thread when a board is asked for
after new votes, at most once a second. Nothing here is stored: a controller reads the whole log once, after its start.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from controller.metrics import Metrics
from controller.votes.vote_fold import BOARDS, VoteFold
from controller.votes.vote_log import PIECE, LogState, VoteLog
from ratings.bradley_terry import POINTS
from ratings.outcomes import PairCounts
from ratings.ranking import Leaderboard, rank_models, rank_with_style
from service_kit.logs import log_event
from wire.entry_ids import LOG_START
from wire.errors import ApiError, ErrorCode
from wire.leaderboard import LeaderboardRow, LeaderboardView, StyleCoefficient
from wire.votes import VoteRecord

BACKGROUND_S = 2.0  #: the counts for drawing pairs are read this often when no board is asked for
MIN_VOTES = 30  #: a model with fewer votes is flagged, unless the request says otherwise
MAX_CACHED = 64  #: fitted boards that are kept until the next vote

_logger = logging.getLogger(__name__)


def fold_votes(
    votes: Iterable[VoteRecord],
    *,
    board: str = "overall",
    models: Sequence[str] = (),
    min_votes: int = MIN_VOTES,
    style_control: bool = False,
    updated_at: float | None = None,
) -> LeaderboardView:
    """The board of a whole log. `models` adds models without a vote; `updated_at` is Unix time, by default now."""
    fold = VoteFold()
    for vote in votes:
        fold.add(vote)
    return make_view(
        fold,
        board=board,
        models=models,
        min_votes=min_votes,
        style_control=style_control,
        updated_at=time.time() if updated_at is None else updated_at,
    )()


def make_view(
    fold: VoteFold,
    *,
    board: str,
    models: Sequence[str],
    min_votes: int,
    style_control: bool,
    updated_at: float,
) -> Callable[[], LeaderboardView]:
    """Copy from `fold` what the fit needs. The returned function fits, in any thread, while votes are added."""
    counts, last_vote_id = fold.snapshot(board), fold.last_vote_id
    columns = fold.columns(board) if style_control and counts.num_votes else None

    def fit() -> LeaderboardView:
        if columns is None:
            ranked = rank_models(counts, models=models, min_votes=min_votes)
        else:
            names = tuple(dict.fromkeys((*columns.models, *models)))
            ranked = rank_with_style(replace(columns, models=names), min_votes=min_votes)
        return _view(ranked, board, last_vote_id, updated_at, style_control)

    return fit


class Leaderboards:
    """Owns the live fold and the cache of fitted boards. Runs on the event loop, fits run in a thread.

    `models` gives every registered model, `clock` the store's Unix time, `refresh_s` how old a board may be.
    """

    def __init__(
        self,
        log: VoteLog,
        metrics: Metrics,
        *,
        models: Callable[[], Iterable[str]],
        clock: Callable[[], float],
        refresh_s: float,
    ) -> None:
        self._log = log
        self._metrics = metrics
        self._models = models
        self._clock = clock
        self._refresh_s = refresh_s
        self._fold = VoteFold()
        self._checked_at = float("-inf")
        self._folding = asyncio.Lock()
        self._fitting = asyncio.Lock()
        self._cache: dict[tuple[str, bool, int], LeaderboardView] = {}
        self._cache_state: tuple[object, ...] | None = None  #: what the cached views were made from
        self._log_state: LogState | None = None  #: the log at the last read

    @property
    def counts(self) -> PairCounts:
        """Counts of the overall board, for drawing pairs. The live object: do not change it."""
        return self._fold.counts["overall"]

    async def view(self, board: str, *, style_control: bool, min_votes: int) -> LeaderboardView:
        """The board, with at least every vote that is older than `refresh_s`. Raises ApiError INVALID_REQUEST for an
        unknown board, STORE_UNAVAILABLE."""
        if board not in BOARDS:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"board must be one of {', '.join(BOARDS)}.", param="board")
        await self.refresh()
        log = self._log_state
        assert log is not None
        models = tuple(sorted(self._models()))
        state = (models, log.token, log.length, log.last_id)
        query = (board, style_control, min_votes)
        async with self._fitting:
            if state != self._cache_state or len(self._cache) >= MAX_CACHED:
                self._cache, self._cache_state = {}, state
            if query not in self._cache:
                fit = make_view(
                    self._fold,
                    board=board,
                    models=models,
                    min_votes=min_votes,
                    style_control=style_control,
                    updated_at=self._clock(),
                )
                view = await asyncio.to_thread(fit)
                restored = {"restored_at": log.restored_at, "num_restored": log.num_restored}
                self._cache[query] = view.model_copy(update=restored)
            return self._cache[query]

    async def refresh(self) -> None:
        """Fold the new votes of the log; reads the log at most once in `refresh_s`. Raises ApiError
        STORE_UNAVAILABLE."""
        async with self._folding:
            if time.monotonic() - self._checked_at < self._refresh_s:
                return
            while True:
                state = await self._log.state(self._fold.last_vote_id or LOG_START)
                if self._fold.num_seen and not self._continues(state):
                    num_folded = self._fold.num_seen
                    log_event(_logger, "vote_log_replaced", logging.WARNING, folded=num_folded, length=state.length)
                    self._fold = VoteFold()
                    continue
                self._log_state = state
                for entry in state.entries:
                    if entry.is_damaged:
                        self._fold.skip(entry.vote_id)
                    else:
                        self._fold.add(entry.vote)
                if len(state.entries) < PIECE:
                    break
                await asyncio.sleep(0)  # a long log must not block the event streams
            self._metrics.rating_lag.set(state.length - self._fold.num_seen)
            self._checked_at = time.monotonic()

    def _continues(self, state: LogState) -> bool:
        """Whether the log is still the one that was folded, with `state.entries` after it."""
        if self._log_state is None or state.token != self._log_state.token:
            return False
        if len(state.entries) == PIECE:
            return True  # there may be more; the last piece tells
        last_id = state.entries[-1].vote_id if state.entries else self._fold.last_vote_id
        return self._fold.num_seen + len(state.entries) == state.length and last_id == state.last_id

    async def refresh_round(self) -> None:
        """`refresh` as background work: a store that is away is no error."""
        with contextlib.suppress(ApiError):
            await self.refresh()


def _points(bound: float) -> float | None:
    return float(POINTS * bound) if math.isfinite(bound) else None


def _view(
    ranked: Leaderboard, board: str, last_vote_id: str | None, updated_at: float, style_control: bool
) -> LeaderboardView:
    return LeaderboardView(
        board=board,
        num_votes=ranked.num_votes,
        last_vote_id=last_vote_id,
        updated_at=updated_at,
        rows=tuple(
            LeaderboardRow(
                model=row.model,
                rating=row.rating,
                lower=row.lower,
                upper=row.upper,
                rank=row.rank,
                votes=row.votes,
                wins=row.wins,
                losses=row.losses,
                ties=row.ties,
                win_rate=row.win_rate,
                worst_rank=row.worst_rank,
                both_bad=row.both_bad,
                votes_to_flip=row.votes_to_flip,
                flags=row.flags,
            )
            for row in ranked.rows
        ),
        win_rate=ranked.win_rate,
        battle_count=ranked.battle_count,
        predicted=ranked.predicted,
        boards=tuple(BOARDS),
        style_controlled=style_control,
        coefficients=tuple(
            StyleCoefficient(
                feature=coefficient.feature,
                points=coefficient.points,
                lower=_points(coefficient.lower),
                upper=_points(coefficient.upper),
            )
            for coefficient in ranked.coefficients
        ),
    )
