"""The fake controller's views of votes and workers: a board, loads and page pools."""

import time
from collections.abc import Sequence

from wire.battles import Outcome
from wire.leaderboard import (
    CohortComparison,
    CohortView,
    HistoryDay,
    HistoryPoint,
    HistoryView,
    LeaderboardRow,
    LeaderboardView,
    PositionBias,
    PropensityDiagnostics,
    Statement,
    StyleCoefficient,
)
from wire.model_cards import BoardCard
from wire.workers import Capacity, Load, ModelCard, PageCounts, PoolPicture, WorkerPool, WorkerView


def leaderboard(models: Sequence[str], votes: Sequence[tuple[str, str, Outcome]]) -> LeaderboardView:
    wins = {model: 0.0 for model in models}
    counts = {model: 0 for model in models}
    pairs: dict[tuple[str, str], tuple[float, int]] = {}
    for a, b, outcome in votes:
        score = {"a": 1.0, "b": 0.0}.get(outcome, 0.5)
        for one, other, won in ((a, b, score), (b, a, 1 - score)):
            wins[one] += won
            counts[one] += 1
            total, met = pairs.get((one, other), (0.0, 0))
            pairs[one, other] = (total + won, met + 1)
    seen = [model for model in models if counts[model]]
    ratings = {model: 1000 + 400 * (wins[model] + 1) / (counts[model] + 2) - 200 for model in seen}
    ordered = sorted(seen, key=lambda model: -ratings[model])
    rows = []
    for place, model in enumerate(ordered, start=1):
        enough = counts[model] >= 3
        half = 300 / (counts[model] + 1) ** 0.5
        rows.append(
            LeaderboardRow(
                model=model,
                rating=ratings[model],
                lower=ratings[model] - half if enough else None,
                upper=ratings[model] + half if enough else None,
                rank=place,
                worst_rank=min(place + 1, len(ordered)) if enough else None,
                votes_to_flip=2 * place if enough and place < len(ordered) else None,
                votes=counts[model],
                wins=int(wins[model]),
                losses=counts[model] - int(wins[model]),
                ties=0,
                win_rate=wins[model] / counts[model],
                flags=() if enough else ("too_few_votes",),
            )
        )
    return LeaderboardView(
        board="overall",
        num_votes=len(votes),
        last_vote_id=str(len(votes)) if votes else None,
        updated_at=time.time(),
        rows=tuple(rows),
        win_rate=tuple(
            tuple(pairs[one, other][0] / pairs[one, other][1] if (one, other) in pairs else None for other in ordered)
            for one in ordered
        ),
        battle_count=tuple(tuple(pairs.get((one, other), (0, 0))[1] for other in ordered) for one in ordered),
    )


_BOARD = (
    # model, rating, half of the interval, rank, worst rank, votes, win rate, flags
    ("marsh-heron-9m", 1142.0, 21.0, 1, 1, 2412, 0.71, ()),
    ("tawny-owl-3m", 1088.0, 19.0, 2, 3, 2630, 0.62, ()),
    ("river-otter-6m", 1071.0, 22.0, 2, 3, 1904, 0.58, ()),
    ("grey-vole-1m", 954.0, 24.0, 4, 5, 1722, 0.36, ()),
    ("grey-vole-1m@4b1f00c2", 947.0, 31.0, 4, 5, 803, 0.34, ()),
    ("red-squirrel-a-model-with-a-very-long-name-of-its-own-2026-11-instruct", 798.0, None, 6, None, 12, 0.08,
     ("too_few_votes",)),
)  # fmt: skip


def full_board(num_more_votes: int = 0, *, board: str = "overall", style_controlled: bool = False) -> LeaderboardView:
    """A board with everything that a view can hold."""
    rows = tuple(
        LeaderboardRow(
            model=model,
            revision=model.partition("@")[2] or None,
            rating=rating,
            lower=None if half is None else rating - half,
            upper=None if half is None else rating + half,
            rank=rank,
            worst_rank=worst,
            votes=votes,
            wins=round(votes * rate),
            losses=votes - round(votes * rate),
            ties=0,
            win_rate=rate,
            votes_to_flip=None if half is None else 40,
            flags=flags,
        )
        for model, rating, half, rank, worst, votes, rate, flags in _BOARD
    )
    names = [row.model for row in rows]
    places = range(len(rows))
    expected = [[1 / (1 + 10 ** ((other.rating - one.rating) / 400)) for other in rows] for one in rows]
    met = [[0 if {i, j} == {0, 5} or i == j else 40 * (i + j) + 12 for j in places] for i in places]
    coefficients = [StyleCoefficient(feature="tokens", points=18.2, lower=11.0, upper=25.4)]
    coefficients.append(StyleCoefficient(feature="bold", points=-2.1, lower=-7.5, upper=3.3))
    return LeaderboardView(
        board=board,
        num_votes=4744 + num_more_votes,
        last_vote_id="4744-0",
        updated_at=1_795_500_000.0,
        rows=rows,
        win_rate=tuple(tuple(expected[i][j] if met[i][j] else None for j in places) for i in places),
        battle_count=tuple(tuple(row) for row in met),
        predicted=tuple(tuple(None if i == j else expected[i][j] for j in places) for i in places),
        boards=("overall", "decisive", "multi_turn", "named", "code", "maths", "creative", "lang_de", "lang_zh", "x_y"),
        style_controlled=style_controlled,
        coefficients=tuple(coefficients) if style_controlled else (),
        anchor=("marsh-heron-9m", "grey-vole-1m"),
        position_bias=PositionBias(points=6.4, lower=1.9, upper=10.9),
        propensity=PropensityDiagnostics(num_known=4700, smallest=0.013, effective_votes=3912.4),
        statements=(
            Statement(above=names[0], below=names[1], is_decided=True, lower=12.4, upper=88.0, votes_needed=None),
            Statement(above=names[1], below=names[2], is_decided=False, lower=-22.0, upper=56.0, votes_needed=1234),
            Statement(above=names[2], below=names[3], is_decided=True, lower=64.0, upper=170.0, votes_needed=None),
            Statement(above=names[3], below=names[4], is_decided=False, lower=None, upper=None, votes_needed=None),
            Statement(above=names[4], below=names[5], is_decided=False, lower=-40.0, upper=338.0, votes_needed=120),
        ),
        unrated={"stopped": 9, "too_quick": 5, "probation": 3},
        num_unrated=16,
        cards={
            names[0]: BoardCard.model_validate(
                {
                    "model": names[0],
                    "provider": "Heron Lab",
                    "released": "2026-03-14",
                    "licence": "Apache-2.0",
                    "num_parameters": 9_412_000,
                    "runs_on": "a Xeon in Lyon",
                    "joules_per_token": 0.42,
                    "link": "https://models.example/heron?a=1&b=2",
                }
            ),
            names[3]: BoardCard(model=names[3], provider="Vole & Sons", licence="MIT", retired="2026-10-01"),
            "blue-tit-2m": BoardCard(model="blue-tit-2m", provider="Tit Works", submitted=1_795_400_000.0),
        },
        states={names[0]: "active", names[3]: "retired", "blue-tit-2m": "submitted"},
    )


def full_history(board: str = "overall", num_days: int = 40) -> HistoryView:
    """Ratings that settle towards those of `full_board`; one model comes late, and on two days nobody votes."""
    days = []
    for number in range(num_days):
        rows = [
            HistoryPoint(
                model=model,
                rating=rating + 120 * (-1) ** place / (number + 2),
                lower=rating - 300 / (number + 1) ** 0.5,
                upper=rating + 300 / (number + 1) ** 0.5,
                votes=30 * (number + 1),
            )
            for place, (model, rating, *_) in enumerate(_BOARD[:4])
            if place != 2 or number >= 15
        ]
        votes = 0 if number in (7, 8) else 90 + 37 * (number % 7)
        month, day = divmod(number, 30)
        days.append(HistoryDay(day=f"2026-{10 + month}-{day + 1:02d}", num_votes=votes, rows=tuple(rows)))
    return HistoryView(board=board, days=tuple(days))


def comparison(first: str, second: str) -> CohortView:
    """The first model is liked better on the first board, the second may be on the other, the third is on one alone."""
    (one, rating, *_), (other, lower_rating, *_), (third, *_), *_ = _BOARD
    return CohortView(
        first=first,
        second=second,
        num_votes=(310, 1250),
        rows=(
            CohortComparison(
                model=one, first=rating + 40, second=rating - 20, difference=60.0, lower=14.0, upper=106.0
            ),
            CohortComparison(
                model=other, first=lower_rating, second=lower_rating + 9, difference=-9.0, lower=-50.0, upper=32.0
            ),
            CohortComparison(model=third, first=1000.0, second=None, difference=None, lower=None, upper=None),
        ),
    )


def pools(num_streaming: int) -> list[WorkerPool]:
    """Worker 0 has one type of layers, worker 1 three; the others have no pool: hosted, or too busy to answer."""
    busy = 10 * num_streaming
    mixed = [(i % 4, 90 - i % 7 * 10, i % 7 * 10) if i % 4 < 3 else (None, 0, 0) for i in range(256)]
    return [
        WorkerPool(
            worker_id="worker-0",
            picture=PoolPicture(
                layer_types=("full_attention",),
                cells=tuple((0, 60 + busy, 30) if i < 90 else (None, 0, 0) for i in range(200)),
            ),
        ),
        WorkerPool(
            worker_id="worker-1",
            picture=PoolPicture(layer_types=("full_attention", "mamba_state", "sliding_window/0"), cells=tuple(mixed)),
        ),
    ]


def workers(models: Sequence[str], busy: int) -> list[WorkerView]:
    """`busy` is the number of battles that are streaming."""
    pools = (
        (PageCounts(layer_type="full_attention", used=96 + 20 * busy, evictable=210, empty=206, page_bytes=16384),),
        (
            PageCounts(layer_type="full_attention", used=40, evictable=60, empty=156, page_bytes=16384),
            PageCounts(layer_type="sliding_window", used=24 + 8 * busy, evictable=16, empty=88, page_bytes=8192),
            PageCounts(layer_type="mamba_state", used=6, evictable=2, empty=24, page_bytes=65536),
        ),
        (),
        (PageCounts(layer_type="full_attention", used=0, evictable=0, empty=2048, page_bytes=16384),),
    )
    return [
        WorkerView(
            worker_id=f"worker-{index}",
            model=model,
            state="ready" if index != 2 else "draining",
            in_flight=busy,
            card=ModelCard(
                name=model,
                revision="4b1f00c2",
                architecture="llama",
                num_parameters=9_412_000 // (index + 1),
                dtype="bfloat16",
                context_length=1024,
                runs_on="cpu",
            ),
            capacity=Capacity(max_running=16, max_queued=64, kv_tokens=8192),
            load=Load(
                running=busy + index,
                waiting=3 if index == 1 else 0,
                tokens_per_s=212.4 if index < 2 else 0.0,
                kv_bytes_used=3_000_000,
                kv_bytes_evictable=2_000_000,
                kv_bytes_total=8_388_608,
                prompt_tokens_total=48_211,
                generation_tokens_total=120_934,
                prefix_hit_tokens_total=30_118,
                preemptions_total=index,
                pages=pool,
            ),
            last_heartbeat_age_s=0.4 + index,
        )
        for index, (model, pool) in enumerate(zip(models, pools, strict=False))
    ]
