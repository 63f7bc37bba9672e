"""The data card of a release: what the files hold, whose votes they are, what was taken out. Pure.

The first lines are metadata as the Hugging Face Hub reads it, so that a release can be uploaded as it is.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from cli import counts
from controller.votes.boards.board_votes import contestant_names, reasons_against
from controller.votes.boards.vote_flags import count_flags
from controller.votes.boards.vote_table import TableSnapshot
from wire.leaderboard import LeaderboardView

_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


@dataclass(frozen=True)
class CardFacts:
    """What the card is made from."""

    title: str
    licence: str
    has_presidio: bool
    votes: TableSnapshot
    num_agreed: int
    num_conversations: int
    num_same_prompt: int
    num_removed: dict[str, int]
    views: tuple[LeaderboardView, ...]


def make_card(facts: CardFacts) -> str:
    """README.md of the release."""
    sections = (_metadata(facts), _what(facts), _files(), _boards(facts), _people(facts), _limits())
    return "\n\n".join(section.strip("\n") for section in sections) + "\n"


def _metadata(facts: CardFacts) -> str:
    size = next((name for limit, name in _SIZES if facts.votes.num_votes < limit), "1M<n<10M")
    languages = "".join(f"\n- {language}" for language in sorted(facts.votes.languages))
    return f"""---
pretty_name: {facts.title!r}
license: {facts.licence}
size_categories:
- {size}
tags:
- human-feedback
- preference
- leaderboard
{f"language:{languages}" if languages else "language: []"}
configs:
- config_name: votes
  data_files: votes.parquet
- config_name: conversations
  data_files: conversations.parquet
---"""


def _what(facts: CardFacts) -> str:
    times = facts.votes.columns["time"]
    days = "none"
    if len(times):
        first, last = (datetime.fromtimestamp(float(time), UTC).date() for time in (np.min(times), np.max(times)))
        days = f"{first} to {last}"
    names = ", ".join(sorted(contestant_names(facts.votes)))
    return f"""
# {facts.title}

Votes of visitors of a chat arena made with Agon. A visitor wrote to two models whose names were hidden, read both
answers and said which one was better, that both were equally good, or that both were bad.

{counts.votes(facts.votes.num_votes)}, {days} (UTC). Models: {names}."""


def _files() -> str:
    return """
## Files

| file | rows |
|---|---|
| `votes.parquet`, `votes.jsonl` | every vote, rated or not; the same in both |
| `conversations.parquet`, `conversations.jsonl` | the texts to whose release the visitor has agreed |
| `boards.json` | the leaderboards when the votes were released, with the options of their fits |
| `recompute.ipynb`, `recompute.py` | computes the boards from the votes and compares every digit; needs numpy |
| `code/ratings` | the code of the fits |

A vote has `model_a` and `model_b` (an older revision of a model as `name@digest`), `outcome` (`a`, `b`, `tie`,
`both_bad`), `mode` (`anonymous`, or `named` where the visitor chose the models), `turns`, `flags` (why it is not rated;
empty: it is), `boards` (which boards of `boards.json` count it), `probability` of drawing this pair, `language` and
`categories` of the prompt, and of each side the tokens and the headers, lists and bold marks of the answers.
`vote`, `prompt` and `voter` are made for this release: equal prompts have one `prompt`, votes of one visitor one
`voter` (-1: not known). `hour` is the time of the vote, rounded down.
A conversation has the `vote` that it belongs to and the messages of both sides."""


def _boards(facts: CardFacts) -> str:
    lines = [f"- `{view.board}`: {counts.votes(view.num_votes)}, {_fit_of(view)}" for view in facts.views]
    reasons = count_flags(reasons_against("overall", facts.votes))
    unrated = [f"| {flag.replace('_', ' ')} | {number} |" for flag, number in reasons.items()]
    table = "\n".join(["| reason | votes |", "|---|---|", *unrated]) if unrated else "Every vote is rated."
    return "\n".join(["## Boards", "", *lines, "", "Votes that the overall board leaves out:", "", table])


def _fit_of(view: LeaderboardView) -> str:
    model = "Rao-Kupper" if view.fit == "rao_kupper" else "Bradley-Terry, a tie as half a win"
    parts = [model]
    if view.style_controlled:
        parts.append("at equal length and formatting of the answers")
    if view.weighting != "votes":
        parts.append(f"weighted by {view.weighting}")
    parts.append(
        f"anchored at {', '.join(view.anchor)}" if view.anchor else "the mean of models with intervals is 1000"
    )
    return "; ".join(parts)


def _people(facts: CardFacts) -> str:
    removed = "\n".join(f"| {kind} | {number} |" for kind, number in facts.num_removed.items())
    table = f"| kind | removed |\n|---|---|\n{removed}" if removed else "Nothing was found in the texts."
    finders = "rules and Microsoft Presidio" if facts.has_presidio else "rules"
    return f"""
## People

The visitor of {facts.num_agreed} votes agreed to a release of the texts. {facts.num_conversations} of these battles are
here; {facts.num_same_prompt} more began with a prompt that another one has, apart from case, blanks and final
punctuation, and were left out (`num_same_prompt` counts them). The texts of all other battles stay in the arena.

Ids are keyed hashes, `voter` is a number in the order of such hashes. No address, account, comment or exact time is in
the files. In the texts, {finders} replaced personal data by its kind and a number, the same number for the same item of
a conversation:

{table}

Of 200 planted items the rules remove at least 95 %. They miss what nothing announces: a first name in the middle of a
sentence, the name of a school, numbers spelled as words. Please report personal data that is still there to the
publisher, and do not use it."""


def _limits() -> str:
    return """
## Limits

Visitors of one arena are not all people, and prompts that are easy to write are more frequent than important ones.
Ratings compare the models on these votes. Answers were written by models and may be false or offensive."""
