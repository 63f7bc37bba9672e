"""Statistics on votes. Pure: numpy only, no input or output, no clock, no store.

outcomes.py      votes, and their fold into pair counts
ranking.py       the leaderboard: rank_models, rank_with_style
bradley_terry.py strengths and sandwich intervals; graph.py says which models can be compared at all
style.py         strengths at equal answer style
bootstrap.py     intervals by resampling, as a cross-check
influence.py     how few votes would flip a place
elo.py           online Elo, for display
pairing.py       which two models meet next
anomalies.py     votes that should not count
"""
