"""The texts that a visitor reads, by name: declared here, written in messages/, one file a language.

`texts.VOTING` is the text in the language that is active where it is read (languages.py). So a text is read when it is
shown and never when a module is imported: no `from webui.texts import`, no constant or default made of one. Texts with
names in braces are templates; sentences.py and ranking/words.py fill them in.
"""

from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from webui.message_files import message
from wire.battles import Outcome, Side
from wire.feedback import Reason, Thumb
from wire.leaderboard import FitModel, Weighting

BRAND: Final = "Agon"
#: Paths of the pages in the header, each with its key in PAGE_NAMES.
PAGES: Final[dict[str, str]] = {
    "/": "battle",
    "/side-by-side": "side-by-side",
    "/chat": "chat",
    "/leaderboard": "leaderboard",
    "/workers": "workers",
}
ABOUT_PATH: Final = "/about"
HISTORY_PATH: Final = "/history"
SHARED_PATH: Final = "/shared"
SIDE_NAME: Final[dict[Side, str]] = {"a": "A", "b": "B"}

Plural = dict[Literal["one", "other"], str]  #: by the forms of CLDR; `other` is always there


class AboutSection(TypedDict):
    """A part of the About page."""

    title: str
    paragraphs: tuple[str, ...]


LANGUAGE_NAME: str
LANGUAGE: str
NUMBERS: dict[str, str]
PERCENT: str
DAY: str
MONTHS: tuple[str, ...]
LIST_SEPARATOR: str
LIST_END: str
CLAUSE_SEPARATOR: str
SENTENCE_SEPARATOR: str
RANGE: str

PAGE_NAMES: dict[str, str]
THEME_TOGGLE: str
ABOUT_LINK: str
ABOUT_TITLE: str
TERMS_TITLE: str
NO_TERMS: str
NOT_FOUND: str
TO_BATTLE: str
NOTICE_WORDS: dict[str, str]
CHECK: str
CHECK_SEND: str
CLOSE: str
EVENT_FAILED: str
RECONNECTING: str

HISTORY: str
HISTORY_LEAD: str
HISTORY_EMPTY: str
NOT_VOTED: str
THEIR_VOTE: dict[Outcome, str]
COPY_LINK: str
CONVERSATION: str
QUESTION: str
COPY: str
COPIED: str
SHARE: str
UNSHARE: str
FORGET: str
IS_SHARED: str
IS_SHARED_SHORT: str
SHARED_AFTER_VOTE: str
SHARED_ON: str
NOT_SHARED: str
KEEP_BATTLE: str

BATTLE_TITLE: str
BATTLE_LEAD: str
NAMED_TITLE: str
NAMED_LEAD: str
DIRECT_TITLE: str
DIRECT_LEAD: str
EXAMPLES_LABEL: str
PROMPT_LABEL: str
PROMPT_FIRST: str
PROMPT_NEXT: str
PROMPT_AFTER: str
PROMPT_FULL: str
PROMPT_DIRECT: str
SEND: str
STOP: str
REGENERATE: str
ASK_AGAIN: str
NEW_BATTLE: str
NEW_CHAT: str
EDIT_LAST: str
RETRY: str
RESUME: str
THREAD_LABEL: str
MODEL_A: str
MODEL_B: str
MODEL: str
PARAMETERS: str
OWN_PARAMETERS: str
TEMPERATURE: str
TEMPERATURE_INFO: str
TOP_P: str
TOP_P_INFO: str
MAX_TOKENS: str
MAX_TOKENS_INFO: str
SAME_MODELS: str
CHOOSE_MODEL: str
NO_MODELS: str

VOTE_HINT: str
VOTES: dict[Outcome, str]
VOTED: dict[Outcome, str]
CHOSEN: str
VOTING: str
UNDO: str
VOTE_UNKNOWN: str
CONSENT: str
REVEALED: str
FEEDBACK: str
FEEDBACK_HINT: str
FEEDBACK_REASONS: str
FEEDBACK_COMMENT: str
FEEDBACK_STATES: dict[str, str]
REASONS: dict[Reason, tuple[str, str, str]]
THUMBS: dict[Thumb, str]
NEW_TO_BOARD: str
RATING_PENDING: str
RANK: str

ANSWER_OF_SIDE: dict[Side, str]
STATUS: dict[str, str]
THOUGHTS: str
THINKING: str
RECONNECTING_SIDE: str
CUT: str
BOTH_DONE: str
TURN_FAILED: str
TURN_FAILED_LATER: str
FAILED_SIDE: str
ABORTED: str
EXPIRED: str
WAITING_BEHIND: str
WAITING_FOR_ROOM: str
ARENA_AWAY: str
WAKING: str
STREAM_LOST: str
UNREACHABLE: str
WENT_ON: str
TOO_LONG: str

FAILURES: dict[str, str]
FAILURE_OTHER: str

LEADERBOARD_TITLE: str
LEADERBOARD_LEAD: str
LEADERBOARD_EMPTY_TITLE: str
LEADERBOARD_EMPTY: str
LEADERBOARD_NO_MATCH: str
START_BATTLE: str
SEARCH: str
MIN_VOTES: str
BOARD: str
STYLE_CONTROL: str
METHOD: str
FIT: str
FITS: dict[FitModel, str]
WEIGHTING: str
WEIGHTINGS: dict[Weighting, str]
OTHER_METHOD: str
VERSUS: str
NO_VERSUS: str
LOADING: str
UNREACHABLE_BOARD: str
STALE: str
BOARDS: dict[str, str]
COHORT_BOARD: str
LANGUAGE_BOARDS: dict[str, str]

COLUMN_RANK: str
COLUMN_MODEL: str
COLUMN_RATING: str
COLUMN_INTERVAL: str
COLUMN_VOTES: str
COLUMN_WIN_RATE: str
COLUMN_DIFFERENCE: str
NUM_VOTES: Plural
UNIT_VOTES: Plural
UNIT_WIN_RATE: str
NO_INTERVAL: str
NO_RANK: str
VOTES_TO_FLIP: Plural
FLAGS: dict[str, str]
RETIRED: str
RETIRED_ON: str
SUBMITTED: str
RELEASED: str
RUNS_ON: dict[str, str]
CHAT_FORMS: dict[str, str]
WAITING_MODELS: str
ANCHOR_ONE: str
ANCHOR_MEAN: str
VOTES_RESTORED: Plural
CSV: str
CSV_FILES: dict[str, str]

NOT_COUNTED: str
NOT_COUNTED_OF: str
UNRATED_WHY: str
UNRATED_TWICE: str
UNRATED: dict[str, tuple[str, str]]
UNRATED_SENTENCE: str
NOT_RATED: str
NOT_RATED_WHY: str
ANSWER_STOPPED: str
REGENERATE_WHOLE: str

STATEMENTS_TITLE: str
STATEMENTS_HINT: str
DECIDED: str
OPEN: str
ABOVE: str
ABOVE_BY: str
UNDECIDED: str
VOTES_DECIDE: Plural
AHEAD_BY: str
POINTS: Plural
MORE_STATEMENTS: str
COMPARISON_TITLE: str
COMPARISON_HINT: str

RATINGS_TITLE: str
RATINGS_HINT: str
DAY_OF_VOTES: str
LINE_OF_MODEL: str
LINES: str
RATING_OF: str
RATING_OF_UNSURE: str
WIN_RATE_PLOT: str
WIN_RATE_PLOT_HINT: str
WIN_RATE_OF: str
PREDICTED_PLOT: str
PREDICTED_PLOT_HINT: str
PREDICTED_OF: str
COUNT_PLOT: str
COUNT_PLOT_HINT: str
COUNT_OF: Plural
FIRST_MODELS: str
MORE_TITLE: str
POSITION: str
POSITION_UNSURE: str
POSITION_WORTH: dict[Side, str]
INTERVAL: str
TIES: str
TIES_OF_EQUALS: str
DRAWING: str
PAIR_KNOWN: str
PAIR_KNOWN_LEAST: str
PAIR_WORTH: str
STYLE_EFFECTS: str
STYLE_EFFECTS_HINT: str
STYLE_EFFECT: str
STYLE_FEATURES: dict[str, str]

WORKERS_TITLE: str
WORKERS_LEAD: str
OPERATOR: str
ADMIN_TOKEN: str
ADMIN_TOKEN_INFO: str
WRONG_ADMIN_TOKEN: str
WORKERS_EMPTY_TITLE: str
WORKERS_EMPTY: str
LOADING_WORKERS: str
WORKER_STATES: dict[str, str]
LAST_HEARD: str
PAGE_STATES: dict[str, str]
LAYER_KINDS: dict[str, str]
NO_PAGES: str
LOAD: dict[str, str]
FACTS: dict[str, str]
POOL: str
POOL_PART: str
PAGES_BY_STATE: str
SHARE_USED: str
NUM_PAGES: Plural
PAGE_SIZE: str

CHAT_SYSTEM: str
CHAT_SYSTEM_INFO: str
CHAT_FAILED: str
CHAT_TURN_FAILED: str
CHAT_GONE: str
CHAT_WENT_ON: str
CHAT_STREAM_LOST: str
CHAT_MODEL_AWAY: str
CHAT_FAILURES: dict[str, str]

EXAMPLES: tuple[str, ...]
ABOUT: tuple[AboutSection, ...]

if not TYPE_CHECKING:  # else every misspelt name would have a type

    def __getattr__(name: str) -> Any:
        if name not in __annotations__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return message(name)
