"""The fake controller's views of votes and workers: a board, loads and page pools."""

import time
from collections.abc import Sequence

from wire.battles import Outcome
from wire.leaderboard import LeaderboardRow, LeaderboardView
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
