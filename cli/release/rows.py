"""The rows of a release: what of a vote is published, and of the texts to whose release the visitor has agreed.

Of every vote: models, outcome, flags, style counts, ids of this release, the hour. Never: the voter's pseudonym,
network and cohort, comments, reasons, times to the second. Texts: scrubbed, and only the first conversation with a
prompt.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cli.release.pseudonyms import Pseudonyms
from cli.release.scrubbing import Scrubber
from controller.votes.boards.board_votes import contestant_names, reasons_against, scope_of
from controller.votes.boards.vote_flags import FLAGS
from controller.votes.boards.vote_table import TableSnapshot
from ratings.style import STYLE_FEATURES
from wire.battles import SIDES
from wire.votes import VoteRecord

_STYLES: Final = tuple(f"{feature}_{side}" for side in SIDES for feature in STYLE_FEATURES)
_MESSAGES: Final = {"role": "string", "content": "string"}

VOTE_COLUMNS: Final[dict[str, Any]] = {
    **dict.fromkeys(("vote", "hour", "model_a", "model_b", "revision_a", "revision_b", "outcome", "mode"), "string"),
    "turns": "int64",
    "flags": "list:string",
    "boards": "list:string",
    "voter": "int64",
    "prompt": "string",
    "language": "string",
    "categories": "list:string",
    "probability": "float64",
    **dict.fromkeys(_STYLES, "int64"),
}
CONVERSATION_COLUMNS: Final[dict[str, Any]] = {
    **dict.fromkeys(("vote", "prompt", "model_a", "model_b", "outcome", "language"), "string"),
    "turns": "int64",
    "num_same_prompt": "int64",
    "conversation_a": _MESSAGES,
    "conversation_b": _MESSAGES,
}


class VoteRows:
    """Makes the row of each vote of a log. `votes` is the table of the whole log, `boards` those that are released."""

    def __init__(self, votes: TableSnapshot, boards: Sequence[str], pseudonyms: Pseudonyms) -> None:
        self._votes = votes
        self._pseudonyms = pseudonyms
        self._names = contestant_names(votes)
        self._counting = {board: _counted(board, votes) for board in boards}
        self._reasons = votes.columns["flags"] | votes.columns["judged"]
        # Numbers in the order of the table's, so that sums over voters are added up in the same order.
        known = np.unique(votes.columns["voter"][votes.columns["voter"] >= 0])
        self._voters = np.where(votes.columns["voter"] >= 0, np.searchsorted(known, votes.columns["voter"]), -1)

    def row(self, position: int, vote: VoteRecord) -> dict[str, Any]:
        """The row of the vote at `position` of the log."""
        votes, columns = self._votes, self._votes.columns
        categories = columns["categories"]  # by the last label, if the vote has one
        hour = datetime.fromtimestamp(vote.time, UTC).replace(minute=0, second=0, microsecond=0)
        first = {
            "vote": self._pseudonyms.of("vote", vote.battle_id),
            "hour": hour.strftime("%Y-%m-%dT%H:00Z"),
            "model_a": self._names[int(columns["a"][position])],
            "model_b": self._names[int(columns["b"][position])],
            "revision_a": vote.a.revision,
            "revision_b": vote.b.revision,
            "outcome": vote.outcome,
            "mode": vote.mode,
            "turns": vote.turns,
            "flags": [flag for bit, flag in enumerate(FLAGS) if int(self._reasons[position]) >> bit & 1],
            "boards": [board for board, is_counted in self._counting.items() if is_counted[position]],
            "voter": int(self._voters[position]),
            "prompt": None if vote.prompt is None else self._pseudonyms.of("prompt", vote.prompt),
            "language": vote.language,
            "categories": [name for bit, name in enumerate(votes.categories) if int(categories[position]) >> bit & 1],
            "probability": vote.probability,
        }
        styles = {"a": vote.a.style, "b": vote.b.style}
        return first | {f"{name}_{side}": getattr(styles[side], name) for side in SIDES for name in STYLE_FEATURES}


class ConversationRows:
    """Makes the rows of conversations. `num_same` counts the conversations that begin with each prompt."""

    def __init__(self, num_same: Mapping[str, int], scrubber: Scrubber) -> None:
        self._num_same = num_same
        self._scrubber = scrubber
        self._seen: set[str] = set()
        self.num_same_prompt = 0  #: conversations left out because another one has their prompt

    def row(self, row: Mapping[str, Any], vote: VoteRecord) -> dict[str, Any] | None:
        """The row of the texts of `vote`, whose other row is `row`; None if the texts are not to be released."""
        prompt = prompt_to_release(vote)
        if prompt is None or vote.conversations is None or "withdrawn" in row["flags"]:
            return None
        if prompt in self._seen:
            self.num_same_prompt += 1
            return None
        self._seen.add(prompt)
        messages = [(side, message) for side in SIDES for message in vote.conversations.get(side, ())]
        texts = self._scrubber.scrub_all([message.content for _, message in messages])
        sides: dict[str, list[dict[str, str]]] = {"a": [], "b": []}
        for (side, message), text in zip(messages, texts, strict=True):
            sides[side].append({"role": message.role, "content": text})
        shared = {name: row[name] for name in CONVERSATION_COLUMNS if name in row}
        return shared | {
            "num_same_prompt": self._num_same[prompt],
            "conversation_a": sides["a"],
            "conversation_b": sides["b"],
        }


def prompt_to_release(vote: VoteRecord) -> str | None:
    """The first prompt in the form in which equal ones are equal; None if the visitor has not agreed to a release, or
    there are no texts."""
    if vote.consent is not True or not vote.conversations or not vote.conversations.get("a"):
        return None
    return normalized(vote.conversations["a"][0].content)


def normalized(prompt: str) -> str:
    """A prompt without the differences that say nothing: case, blanks, kinds of letters and punctuation at the end."""
    folded = unicodedata.normalize("NFKC", prompt).casefold()
    return re.sub(r"\s+", " ", folded).strip().rstrip(".!?\u3002\uff01\uff1f ")


def count_prompts(counts: Counter[str], vote: VoteRecord) -> None:
    """Count the prompt of a vote, if its texts may be released."""
    if (prompt := prompt_to_release(vote)) is not None:
        counts[prompt] += 1


def _counted(board: str, votes: TableSnapshot) -> npt.NDArray[np.bool_]:
    scope = scope_of(board, votes)
    assert scope is not None, board
    return np.asarray(scope & (reasons_against(board, votes) == 0))
