"""Statistics on votes. Pure: numpy only, no input or output, no clock, no store.

outcomes.py      votes, and their fold into pair counts
options.py       how a board is fitted
ranking.py       the leaderboard: rank_board
bradley_terry.py strengths and sandwich intervals; graph.py says which models can be compared at all
rao_kupper.py    ties with a probability of their own
joint.py         Newton's method on votes or cells of votes, with covariates and ties
style.py         votes as columns; strengths at equal answer style
weights.py       what a vote weighs: inverse propensities, careless voters
position.py      the effect of standing first
influence.py     how few votes would flip a place
sequential.py    statements about neighbours that hold however often one looks
pairing.py       which two models meet next
voters.py        voters who do not vote like the others
cohorts.py       groups of voters who vote alike and unlike everybody else
caps.py          votes beyond a cap
"""
