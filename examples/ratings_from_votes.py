"""Ratings with honest error bars from any list of votes, without an arena. `python examples/ratings_from_votes.py`"""

from ratings.outcomes import PairCounts
from ratings.ranking import rank_models

counts = PairCounts()
for winner, loser, times in (
    ("tea", "coffee", 60),
    ("coffee", "tea", 40),
    ("coffee", "water", 70),
    ("water", "tea", 35),
):
    for _ in range(times):
        counts.add(winner, loser, "a")

for row in rank_models(counts, min_votes=30).rows:
    interval = "no interval" if row.lower is None else f"{row.lower:7.1f} .. {row.upper:7.1f}"
    print(f"{row.rank}. {row.model:<8} {row.rating:7.1f}  {interval}  {', '.join(row.flags)}")
