"""All texts that a visitor reads. Plain words; no model names, no markup.

Errors are shown by error code. The message of another service is never repeated: it could name a model.
"""

import time
from collections.abc import Sequence
from typing import Final

from wire.battles import Outcome, Side
from wire.errors import ErrorCode
from wire.feedback import Reason, Thumb

BRAND: Final = "Agon"
THEME_TOGGLE: Final = "Switch between light and dark"
PAGES: Final = (
    ("/", "Battle"),
    ("/side-by-side", "Side by side"),
    ("/chat", "Chat"),
    ("/leaderboard", "Leaderboard"),
    ("/workers", "Workers"),
)

HISTORY_PATH: Final = "/history"
SHARED_PATH: Final = "/shared"
HISTORY: Final = "Your battles"
HISTORY_LEAD: Final = "The battles that this browser has begun and the arena still keeps. Only you see this list."
HISTORY_EMPTY: Final = "There is none yet."
NOT_VOTED: Final = "not voted on"
THEIR_VOTE: Final[dict[Outcome, str]] = {
    "a": "The vote: A is better",
    "tie": "The vote: a tie",
    "both_bad": "The vote: both are bad",
    "b": "The vote: B is better",
}
COPY_LINK: Final = "Copy the link"
CONVERSATION: Final = "A conversation with two models"
QUESTION: Final = "Question"
SIDE_LABELS: Final[dict[Side, str]] = {"a": "Answer A", "b": "Answer B"}
COPY: Final = "Copy"
COPIED: Final = "Copied"
SHARE: Final = "Make a link for others"
UNSHARE: Final = "Take the link back"
FORGET: Final = "Remove from your battles"
IS_SHARED: Final = "Everybody with this link can read the conversation:"
IS_SHARED_SHORT: Final = "has a link"
SHARED_AFTER_VOTE: Final = "Once you have voted, you can make a link to this battle for others."
NOT_SHARED: Final = "There is nothing under this link. It may have been taken back, or its time is over."
KEEP_BATTLE: Final = "Copy, save or share this battle"

ABOUT_PATH: Final = "/about"
ABOUT_LINK: Final = "How it works, and what is kept"
ABOUT_TITLE: Final = "About this arena"
#: Sections: a title and its paragraphs.
ABOUT: Final = (
    (
        "A battle",
        (
            "Two models get your question and answer at the same time. Which two they are, and which of them is on "
            "which side, is drawn by chance; no name leaves the arena before your vote.",
            "Go on as long as you like: the vote is about the whole conversation. Once you have voted the names appear "
            "and the battle is closed. An answer that gives its model's name away can be voted on, but is not rated.",
        ),
    ),
    (
        "What is kept",
        (
            "Your questions and both answers of a battle, so that a reloaded page finds them again. Without a vote "
            "they are deleted after a day. With one they stay with the vote, and the operator of this arena can "
            "read and export them. They may publish them only where you have ticked the box below your vote, "
            "and without addresses, names and other personal data. What you say about a vote afterwards is kept with "
            "it, for the operator alone. Please write nothing that must stay private.",
            "Your browser keeps a cookie with a random number, by which a battle stays yours when your address "
            "changes; a vote holds a pseudonym made from it, and no address. Without cookies everything works, too: "
            "then the pseudonym comes from your address and changes every day. No page loads anything from anywhere "
            "else.",
            "A conversation under Chat is kept for you alone, so that your browser finds it again after a reload and "
            "on another day. It is deleted seven days after its last answer, and at once when you begin a new chat. It "
            "enters no ranking and is never published.",
            "Under Your battles this browser finds the battles that it has begun. A link that you make there shows "
            "one of them to everybody who has it, for 90 days or until you take it back.",
            "These are Agon's defaults. The operator of this arena may keep less or more; their own terms, if any, are "
            "below.",
        ),
    ),
    (
        "The ranking",
        (
            "Ratings are fitted to all rated votes at once (Bradley-Terry): 400 points more mean ten wins for each "
            "loss. A tie, and a vote that both are bad, count half for each side. The interval says what the votes "
            "support, and a rank is a range where they leave several places open. Models with few votes get neither.",
            "Of neighbours the leaderboard says which is above the other once the votes have decided it, and until "
            "then about how many more it takes. It also says how many votes are not counted, and why.",
        ),
    ),
    (
        "By keyboard",
        (
            "Enter sends, Shift and Enter begin a new line, / goes to the question. When both answers are finished, "
            "Shift and an arrow key vote: left for A, right for B, up for a tie, down if both are bad. A vote can be "
            "taken back for a few seconds; then it is recorded, and the names appear.",
        ),
    ),
)
TERMS_TITLE: Final = "Terms of use"
NO_TERMS: Final = "This arena has no terms of use."
#: Words of assets/notices.js.
NOTICE_WORDS: Final = {
    "region": "Notices of the operator",
    "hide": "Hide this notice",
    "title": TERMS_TITLE,
    "lead": "Please read the terms of this arena. You are asked once, and again if they change.",
    "accept": "I accept",
    "decline": "Not now, show me the leaderboard",
    "failed": "That was not recorded. Please try again.",
}
NOT_FOUND: Final = "There is nothing at this address."
TO_BATTLE: Final = "To the arena"

BATTLE_TITLE: Final = "Two models, one question"
BATTLE_LEAD: Final = (
    "Ask anything. Two hidden models answer side by side. Say which answer is better, and their names appear."
)
NAMED_TITLE: Final = "Put two models side by side"
NAMED_LEAD: Final = "Choose a model for each side, then ask both the same question."
DIRECT_TITLE: Final = "Talk to one model"
DIRECT_LEAD: Final = "Choose a model and start. Nothing here is rated."
EXAMPLES_LABEL: Final = "Some questions to start with"
EXAMPLES: Final = (
    ("Say hello", "Hello! How are you today?"),
    ("Do arithmetic", "What is 12 + 30?"),
    ("Name a capital", "What is the capital of France?"),
    ("Tell a story", "Tell me a short story about a fox and a lantern."),
    ("Sort words", "Sort these words: pear, apple, fig, plum."),
    ("Remember me", "My name is Ada. Please remember it. What is my name?"),
)

PROMPT_LABEL: Final = "Your question"
PROMPT_FIRST: Final = "Ask both models something"
PROMPT_NEXT: Final = "Ask a follow-up"
PROMPT_AFTER: Final = "Ask something new"
PROMPT_FULL: Final = "This conversation is as long as it can be"
PROMPT_DIRECT: Final = "Write a message"
SEND: Final = "Send"
STOP: Final = "Stop"
REGENERATE: Final = "Regenerate"
ASK_AGAIN: Final = "Ask the same again"
NEW_BATTLE: Final = "New battle"
NEW_CHAT: Final = "New chat"
EDIT_LAST: Final = "Edit last"
RETRY: Final = "Try again"
RESUME: Final = "Reconnect"
THREAD_LABEL: Final = "Conversation"

MODEL_A: Final = "Model A"
MODEL_B: Final = "Model B"
MODEL: Final = "Model"
PARAMETERS: Final = "Sampling parameters"
OWN_PARAMETERS: Final = "Every model uses its own settings"
TEMPERATURE: Final = "Temperature"
TEMPERATURE_INFO: Final = "0 always takes the likeliest word"
TOP_P: Final = "Top p"
TOP_P_INFO: Final = "Only words in this share of the probability"
MAX_TOKENS: Final = "Longest answer"
MAX_TOKENS_INFO: Final = "in tokens"
SAME_MODELS: Final = "Please choose two different models."
CHOOSE_MODEL: Final = "Please choose a model first."
NO_MODELS: Final = "No model is being served yet. This page shows the first one as soon as its worker is ready."

VOTE_HINT: Final = "Shift and an arrow key vote: left A, right B, up tie, down both bad."
VOTES: Final[dict[Outcome, str]] = {
    "a": "A is better",
    "tie": "Tie",
    "both_bad": "Both are bad",
    "b": "B is better",
}
VOTE_KEY_NAMES: Final[dict[Outcome, str]] = {"a": "left", "tie": "up", "both_bad": "down", "b": "right"}
VOTED: Final[dict[Outcome, str]] = {
    "a": "You chose A",
    "tie": "You called it a tie",
    "both_bad": "You found both bad",
    "b": "You chose B",
}
VOTING: Final = "Recording your vote"
UNDO: Final = "Undo"
NAMES_FOLLOW: Final = "The names appear in a moment."
VOTE_UNKNOWN: Final = (
    "No answer about your vote yet, so it may or may not be recorded. Nothing is lost: vote the same way again."
)
CONSENT: Final = "This conversation may be published"
FEEDBACK: Final = "Say why"
FEEDBACK_HINT: Final = "optional, not rated"
FEEDBACK_REASONS: Final = "What decided your vote"
FEEDBACK_COMMENT: Final = "Comment"
#: What the line below says; the script of the block has it, too.
FEEDBACK_STATES: Final = {
    "saved": "Saved",
    "waiting": "Not saved yet: the arena does not answer. It is sent again in a moment.",
}
#: For each outcome: one side is better, a tie, both are bad.
REASONS: Final[dict[Reason, tuple[str, str, str]]] = {
    "helpfulness": ("More helpful", "Both helpful", "Not helpful"),
    "accuracy": ("More accurate", "Both accurate", "Not accurate"),
    "style": ("Better style", "Both well written", "Badly written"),
    "instructions": ("Follows instructions", "Both follow instructions", "Instructions ignored"),
}
THUMBS: Final[dict[Thumb, str]] = {"up": "Answer {side}: good", "down": "Answer {side}: bad"}
NEW_TO_BOARD: Final = "first rating"
RATING_PENDING: Final = "rating follows"

SIDE_NAME: Final[dict[Side, str]] = {"a": "A", "b": "B"}
ANSWER_OF_SIDE: Final[dict[Side, str]] = {"a": "Answer A", "b": "Answer B"}
STATUS: Final = {
    "waiting": "thinking",
    "writing": "writing",
    "finished": "finished",
    "stopped": "stopped",
    "failed": "could not answer",
}
THOUGHTS: Final = "Thoughts"  #: of a model, folded above its answer
THINKING: Final = "Thinking"  #: the same while the answer has not begun
RECONNECTING_SIDE: Final = "reconnecting, goes on in a moment"
CUT: Final = "reached the length limit"
BOTH_DONE: Final = "Both answers are finished."
TURN_FAILED: Final = "Nothing is lost: ask again, or start a new battle."
TURN_FAILED_LATER: Final = "Nothing is lost: ask again, ask something else, or vote on the turns before it."
FAILED_SIDE: Final = "This side could not answer."
ABORTED: Final = "A failed battle cannot be voted on; nothing was recorded."
EXPIRED: Final = "This battle is too old to go on."
WAITING_BEHIND: Final = "All models are busy. Your question is in line; up to {count} others are before it."
WAITING_FOR_ROOM: Final = "All models are busy. Your question is in line."
RECONNECTING: Final = "Reconnecting. Nothing is lost: this page goes on by itself in a moment."
ARENA_AWAY: Final = "The arena does not answer at the moment. Your question is kept and sent as soon as it does."
STREAM_LOST: Final = "The connection to the answers was lost. They may still be written."
UNREACHABLE: Final = "The arena does not answer at the moment. Your question is kept; please try again."
CLOSE: Final = "Close"
EVENT_FAILED: Final = "That did not work. Reload the page and try again."
WENT_ON: Final = "This battle went on in another tab. Here is what it came to; please look at it first."
RESTORED_ELSEWHERE: Final = "This battle belongs to another visitor."

FAILURES: Final[dict[str, str]] = {
    ErrorCode.CONTEXT_LENGTH_EXCEEDED: (
        "The conversation is longer than a model can read. Please shorten the question or start anew."
    ),
    ErrorCode.REQUEST_TOO_LARGE: "That is too long. Please shorten it.",
    ErrorCode.INVALID_REQUEST: "The arena did not accept that.",
    ErrorCode.UNAUTHORIZED: "This page may not talk to the arena: its key is missing or wrong.",
    ErrorCode.FORBIDDEN: "This page may not do that.",
    ErrorCode.MODEL_NOT_FOUND: "That model is not being served any more.",
    ErrorCode.BATTLE_NOT_FOUND: "That battle is gone. Please start a new one.",
    ErrorCode.CHAT_NOT_FOUND: "That chat is gone. Your question begins a new one.",
    ErrorCode.BATTLE_BUSY: "The models are still answering.",
    ErrorCode.BATTLE_NOT_FINISHED: "Both answers must be finished before you can vote.",
    ErrorCode.BATTLE_ALREADY_VOTED: "This battle has a vote already.",
    ErrorCode.BATTLE_ABORTED: "A side failed, so this battle is over.",
    ErrorCode.STALE_TURN: "This battle went on in another tab. Here is what it came to; your question is in the box.",
    ErrorCode.FEEDBACK_FULL: "This was changed very often. The arena keeps what it saved last.",
    ErrorCode.BATTLE_FULL: "This conversation is as long as it can be. You can still vote.",
    ErrorCode.NOT_YOUR_BATTLE: RESTORED_ELSEWHERE,
    ErrorCode.VOTER_NOT_KNOWN: (
        "Battles of this arena are for voters who were invited or have signed in. If you were given a link, open it "
        "and ask again."
    ),
    ErrorCode.CAPTCHA_NEEDED: "Please reload the page, and show that you are a person.",
    ErrorCode.CAPTCHA_FAILED: "That was not solved. Please try again.",
    ErrorCode.TERMS_NOT_ACCEPTED: "Please accept the terms of this arena first, then ask again.",
    ErrorCode.INVITATION_NOT_FOUND: "This invitation does not hold any more. Please ask for a new one.",
    ErrorCode.RATE_LIMITED: "That was a lot in a short time. Please wait a moment.",
    ErrorCode.QUEUE_FULL: "All models are busy. Please try again in a moment.",
    ErrorCode.OVERLOADED: "The arena gets more questions than it can take. Please try again in a moment.",
    ErrorCode.NO_WORKER: "No model is ready to answer right now. Please try again in a moment.",
    ErrorCode.NOT_ENOUGH_MODELS: (
        "A battle needs two models, and fewer are ready. Please try again in a moment; Chat works with one."
    ),
    ErrorCode.WORKER_FAILED: "The model stopped in the middle of its work.",
    ErrorCode.WORKER_TIMEOUT: "The model took too long.",
    ErrorCode.STORE_UNAVAILABLE: "The arena cannot save right now. Please try again in a moment.",
    ErrorCode.SHUTTING_DOWN: "The arena is restarting. Please try again in a moment.",
}
FAILURE_OTHER: Final = "Something went wrong in the arena. Please try again."


CHECK: Final = "One moment: please show that you are a person. It is asked once for this browser."
CHECK_SEND: Final = "Go on"


def waiting_in_line(num_before: int) -> str:
    """Where a question stands that waits for room, in coarse steps."""
    return WAITING_BEHIND.format(count=num_before) if num_before else WAITING_FOR_ROOM


def shared_on(day: str) -> str:
    """What stands above a shared battle; `day` is an ISO date."""
    return f"A visitor of this arena had this battle on {day} and shared it. The models were hidden until the vote."


def bare_page(sentence: str) -> str:
    """A page with one sentence and the way to the first page, as markup; `sentence` is markup, too."""
    return (
        '<!doctype html><html lang="en"><meta name="viewport" content="width=device-width"><meta name="color-scheme" '
        f'content="light dark"><title>{BRAND}</title><body style="font:18px system-ui;margin:15vh auto;'
        f'max-width:32em;padding:0 16px"><p>{sentence}</p><p><a href="/">{TO_BATTLE}</a></p>'
    )


def too_long(length: int, most: int) -> str:
    """Notice for a prompt of `length` characters where `most` are allowed."""
    return f"A question may have {most:,} characters, and this one has {length:,}. Please shorten it."


def chosen(outcome: Outcome) -> str:
    """Notice while a vote can still be taken back."""
    return f"{VOTED[outcome]}. {NAMES_FOLLOW}"


def failure(code: str | None) -> str:
    """The sentence for an error code; unknown codes and None get a general one."""
    return FAILURES.get(code or "", FAILURE_OTHER)


LEADERBOARD_TITLE: Final = "Leaderboard"
LEADERBOARD_EMPTY_TITLE: Final = "No votes yet"
LEADERBOARD_EMPTY: Final = "The first vote opens the ranking. Ask two models something and say which one did better."
LEADERBOARD_NO_MATCH: Final = "No model matches this filter."
START_BATTLE: Final = "Start a battle"
SEARCH: Final = "Search models"
MIN_VOTES: Final = "Minimum votes"
COLUMN_RANK: Final = "Rank"
COLUMN_MODEL: Final = "Model"
COLUMN_RATING: Final = "Rating"
COLUMN_INTERVAL: Final = "95 % interval"
COLUMN_VOTES: Final = "Votes"
COLUMN_WIN_RATE: Final = "Win rate"
NO_INTERVAL: Final = "not yet known"
NO_RANK: Final = "too few votes for a rank"
WIN_RATE_PLOT: Final = "How often the row beats the column"
WIN_RATE_PLOT_HINT: Final = "Ties count half. Blue: the row wins more often; amber: the column does."
PREDICTED_PLOT: Final = "What the ratings predict"
PREDICTED_PLOT_HINT: Final = "How often the row would beat the column, also where the two have not met yet."
COUNT_PLOT: Final = "How often two models met"
COUNT_PLOT_HINT: Final = "The stronger the colour, the more battles."
BOARD: Final = "Board"
STYLE_CONTROL: Final = "Adjust for length and formatting"
LOADING: Final = "Counting the votes"
LOADING_WORKERS: Final = "Asking the workers"
FLAGS: Final = {
    "no_votes": "no votes yet",
    "too_few_votes": "few votes",
    "never_lost": "has never lost",
    "never_won": "has never won",
    "only_ties": "has only ties",
    "disconnected": "never met some of the others",
    "one_sided": "not yet comparable with all others",
}

WORKERS_TITLE: Final = "Workers"
WORKERS_LEAD: Final = (
    "Each worker serves one model from a pool of memory pages. A page holds the keys and values of a few tokens; "
    "pages of finished conversations are kept until another conversation needs the space. How busy a worker is stays "
    "hidden: it would tell which models are in a battle."
)
OPERATOR: Final = "For the operator of this arena"
ADMIN_TOKEN: Final = "Admin token"
ADMIN_TOKEN_INFO: Final = (
    "Shows loads and page pools: each square is a part of the pool, in address order; colours show the kinds of "
    "layers. `agon up` keeps the token in secrets.json of its data directory."
)
WRONG_ADMIN_TOKEN: Final = "This is not the admin token."
WORKERS_EMPTY_TITLE: Final = "No worker is registered"
WORKERS_EMPTY: Final = "Start one with: agon worker"
WORKER_STATES: Final = {"starting": "starting", "ready": "ready", "draining": "finishing its work"}
PAGE_STATES: Final = {"used": "used", "evictable": "kept for reuse", "empty": "empty"}
#: Words for the engine's kinds of layers; any other name is shown unchanged.
LAYER_KINDS: Final = {"full": "full attention", "window": "sliding windows", "recurrent": "recurrent states"}
NO_PAGES: Final = "This worker has no page pool of its own."
UNREACHABLE_BOARD: Final = "The arena does not answer at the moment."
STALE: Final = "The arena does not answer; these numbers may be old."


FACTS: Final = {
    "running": "answering",
    "waiting": "in line",
    "speed": "tokens a second",
    "context": "tokens of context",
    "parameters": "parameters",
    "hits": "prompt tokens from kept pages",
    "preemptions": "interrupted for room",
    "swapped": "waiting, swapped to main memory",
}


def votes_to_flip(count: int) -> str:
    """How many votes would change a rank."""
    votes = "1 vote" if count == 1 else f"{count:,} votes"
    return f"{votes} could put the next model above"


def rating_sentence(model: str, rating: float, lower: float | None, upper: float | None) -> str:
    """The title of an interval's picture."""
    if lower is None or upper is None:
        return f"{model}: {rating:.0f}, interval {NO_INTERVAL}"
    return f"{model}: {rating:.0f}, interval {lower:.0f} to {upper:.0f}"


def win_rate_sentence(row: str, column: str, rate: float) -> str:
    """The title of a cell of the win rates; `rate` is a share."""
    return f"{row} beats {column} in {rate:.0%} of their battles"


def predicted_sentence(row: str, column: str, rate: float) -> str:
    """The title of a cell of the predicted rates; `rate` is a share."""
    return f"by their ratings {row} would beat {column} in {rate:.0%} of battles"


def count_sentence(row: str, column: str, count: int) -> str:
    """The title of a cell of the battle counts."""
    return f"{row} and {column} met {count} times"


def pool_sentence(num_cells: int, used: float, kept: float, cells_by_type: Sequence[tuple[str, int]]) -> str:
    """The title of a pool's picture; `used` and `kept` are percentages."""
    in_use, kept_pages, empty = PAGE_STATES["used"], PAGE_STATES["evictable"], PAGE_STATES["empty"]
    shares = f"{used:.0f}% {in_use}, {kept:.0f}% {kept_pages}, the rest {empty}"
    held = "".join(f"; {name} in {count}" for name, count in cells_by_type)
    return f"Page pool in the order of its addresses, {num_cells} cells: {shares}{held}"


def pages_sentence(used: int, evictable: int, empty: int) -> str:
    """Counts of pages by state."""
    return f"{used:,} {PAGE_STATES['used']}, {evictable:,} {PAGE_STATES['evictable']}, {empty:,} {PAGE_STATES['empty']}"


def layer_kind(name: str) -> str:
    """The name that visitors read for a kind of layer."""
    return LAYER_KINDS.get(name, name.replace("_", " "))


def short_count(number: int) -> str:
    """A count with three digits and a unit: 5.25 M."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return str(number)


def page_size(page_bytes: int) -> str:
    """The size of one page in KiB."""
    return f"{page_bytes / 1024:,.0f} KiB a page"


def seconds_ago(age_s: float) -> str:
    """The age of a worker's last heartbeat."""
    return f"last heard from {age_s:.0f} s ago"


def num_votes(count: int) -> str:
    """A count of votes."""
    return "1 vote" if count == 1 else f"{count:,} votes"


def votes_restored(count: int, time_s: float) -> str:
    """That votes were brought back into the store, and when."""
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(time_s))
    return f"{num_votes(count)} that the store had lost came back from the journal on {when}."


def rank(place: int, num_models: int) -> str:
    """A model's place on the board."""
    return f"rank {place} of {num_models}"


def reason(name: Reason, outcome: Outcome) -> str:
    """The words for a reason of a vote."""
    better, tie, bad = REASONS[name]
    return bad if outcome == "both_bad" else tie if outcome == "tie" else better


def thumb(side: Side, direction: Thumb) -> str:
    """The name of the button that gives a side's answers a thumb."""
    return THUMBS[direction].format(side=SIDE_NAME[side])


def revealed(side: Side, model: str) -> str:
    """Which model was on a side, for screen readers."""
    return f"{SIDE_NAME[side]} is {model}."


def flag(name: str) -> str:
    """The words for a flag of a leaderboard row."""
    return FLAGS.get(name, name.replace("_", " "))


CHAT_SYSTEM: Final = "System prompt"
CHAT_SYSTEM_INFO: Final = "Every model of this chat is told this before your first question."
CHAT_FAILED: Final = "The model could not answer."
CHAT_TURN_FAILED: Final = "Nothing is lost: try again, choose another model, or ask something else."
CHAT_GONE: Final = "The earlier chat is gone. Your next question begins a new one."
CHAT_WENT_ON: Final = "This chat went on in another tab. Here is what it came to; your question is in the box."
STREAM_LOST_CHAT: Final = "The connection to the answer was lost. It may still be written."
#: Where the sentence about an error differs from that of a battle.
CHAT_FAILURES: Final[dict[str, str]] = {
    ErrorCode.CONTEXT_LENGTH_EXCEEDED: (
        "The conversation is longer than this model can read. Please shorten the question or begin a new chat."
    ),
    ErrorCode.MODEL_NOT_FOUND: "That model is not being served any more. Please choose another one.",
    ErrorCode.BATTLE_FULL: "This chat is as long as it can be. Please begin a new one.",
    ErrorCode.NO_WORKER: "This model is not ready to answer right now. Please try again in a moment.",
    ErrorCode.QUEUE_FULL: "This model is busy. Please try again in a moment.",
}


def chat_model_away(model: str) -> str:
    """Hint below the choice of models: the model that was chosen before is not there."""
    return f"{model} is not being served at the moment. Choose another model, or come back later."
