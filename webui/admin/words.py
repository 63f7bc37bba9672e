"""What the admin page says. It is the operator's page, so it is in English only."""

from typing import Final

from wire.admin import ActionName
from wire.served_models import Residence

TITLE: Final = "Administration"
LEAD: Final = (
    "What you set here holds for all controllers within two seconds. Every action is kept in a log, with your reason."
)
TOKEN: Final = "Admin token"
TOKEN_HELP: Final = "agon up keeps it in secrets.json of its data directory. It stays in this tab until you close it."
SIGN_IN: Final = "Sign in"
SIGN_OUT: Final = "Sign out"
SIGNED_IN: Final = "Signed in as"
WRONG_TOKEN: Final = "This is not the admin token."
REFRESH: Final = "Refresh"
DONE: Final = "Done, and in the log."
UNREACHABLE: Final = "The arena does not answer at the moment. Nothing was changed, as far as is known."
REASON: Final = "Reason"
SAVE: Final = "Save"
NONE: Final = "None."
CONTENTS: Final = "Sections of this page"

MODELS: Final = "Models"
MODELS_HELP: Final = (
    "A model that is off begins no battle, chat or API request; battles under way are finished with it. Pairs are "
    "drawn in proportion to the product of both weights; a model of weight 0 is only chosen by name."
)
IS_ON: Final = "On"
WEIGHT: Final = "Weight"
RETIRED: Final = "retired by its card"
RETIRE: Final = "Retire"
PUT_BACK: Final = "Put back"
RETIREMENT: Final = "Retire, or put back"
NEW_MODEL: Final = "New model"
NEW_MODEL_HELP: Final = (
    "A new model is listed on the board at once and drawn as soon as a worker serves it. A retired one gets no battles "
    "from today (UTC) on and stays on the board. Sizes, languages and prompts: agon models card."
)
PROVIDER: Final = "Made by"
LICENCE: Final = "Licence"
RELEASED: Final = "Released"
ADD: Final = "Add"

WORKERS: Final = "Workers"
WORKERS_HELP: Final = (
    "A drained worker finishes its answers and gets no new ones, also after a restart, until it is resumed. Stop it "
    "when nothing is in flight. Workers are added by starting them: agon worker."
)
DRAIN: Final = "Drain"
RESUME: Final = "Resume"
DRAINED: Final = "drained"
AWAY: Final = "not registered"
IN_FLIGHT: Final = "in flight"

SERVED: Final = "Models in memory"
SERVED_HELP: Final = (
    "A model that sleeps has given back its memory; the next battle, chat or request wakes it. One that is removed "
    "finishes its answers first. Worker processes keep what was added over a restart."
)
SILENT: Final = "does not answer"
OF: Final = "of"
IN_MEMORY: Final = "in memory"
RESIDENCES: Final[dict[Residence, str]] = {
    "resident": "in memory",
    "asleep": "asleep",
    "on_disk": "on disk",
    "loading": "being loaded",
    "draining": "finishes its answers",
    "failed": "not served",
}
#: By ChatForm; of other models nothing is said.
CHAT_FORMS: Final = {"none": "completes text, does not chat", "plain": "asked in plain text"}
HOSTED: Final = "by another server"
MEMORY_OF: Final = "Memory of"
ACTION: Final = "Action"
MODEL_ACTIONS: Final = {"wake": "Wake", "sleep": "Sleep", "remove": "Remove", "move": "Move"}
MOVE_TO: Final = "Move to"
NOWHERE: Final = "(only for Move)"
DO: Final = "Do it"
ADD_MODEL: Final = "Add a model"
ADD_MODEL_HELP: Final = (
    "The worker finds the folder, GGUF file or hub id on its own machine. A model of another server is "
    "openai:MODEL@https://HOST/v1#key_env=NAME, where NAME is a variable of the worker. Running answers go on."
)
SOURCE: Final = "Folder, GGUF file, hub id or openai:MODEL@URL"
IN_WORKER: Final = "In worker"
EMPTIEST: Final = "(the one with the fewest models)"

NOTICES: Final = "Notices to visitors"
NOTICE_TEXT: Final = "Notice"
SEVERITY: Final = "Severity"
SEVERITIES: Final = {"info": "Information", "warning": "Warning", "critical": "Critical"}
STARTS: Final = "From (empty: now)"
ENDS: Final = "Until (empty: until removed)"
SHOW_NOTICE: Final = "Show to visitors"
REMOVE: Final = "Remove"
NOTICE_STATES: Final = {"now": "shown now", "later": "not yet shown", "over": "over"}

TERMS: Final = "Terms"
TERMS_HELP: Final = (
    "A visitor accepts them before the first battle or chat, and again when they change. An empty text ends the gate."
)
TERMS_TEXT: Final = "Text; an empty line begins a paragraph"
TERMS_VERSION: Final = "Version in force"
TERMS_FROM_FILE: Final = "from AGON_TERMS_FILE"
NO_TERMS: Final = "No terms are in force."

VOTES: Final = "Newest votes"
VOTES_HELP: Final = (
    "Voiding appends a judgement to the vote log; the vote itself is never edited, and can be made to count again."
)
VOTE_COLUMNS: Final = ("Time", "Models", "Outcome", "Voter", "Not rated because", "")
VOID: Final = "Void"
RESTORE: Final = "Count again"
SCOPE: Final = "What"
THIS_VOTE: Final = "this vote"
THIS_VOTER: Final = "all of this voter"
OLDER: Final = "Older votes"
NEWEST: Final = "Newest votes"

FAILURES: Final = "Failures of the last day"
FAILURE_COLUMNS: Final = ("Cause", "Model", "Worker", "Times", "Latest")
RATES: Final = "Rate limits"
RATES_HELP: Final = "For one address. They are settings (AGON_..._RATE_PER_MINUTE and _BURST), read at start."
RATE_COLUMNS: Final = ("Requests", "A minute", "At once", "Refused in the last day")
RATE_KINDS: Final = {
    "battle": "new battles",
    "vote": "votes",
    "other": "each other kind",
    "local": "processes of this machine",
}

ACTIONS: Final = "Log of actions"
ACTION_COLUMNS: Final = ("Time", "Who", "What", "Subject", "Set", "Reason")
EXPORT: Final = "Export all (JSON lines)"
ACTION_NAMES: Final[dict[ActionName, str]] = {
    "set_model": "model set",
    "drain_worker": "worker drained",
    "resume_worker": "worker resumed",
    "add_notice": "notice shown",
    "remove_notice": "notice removed",
    "set_terms": "terms set",
    "judge_votes": "votes judged",
    "import_votes": "votes imported",
    "put_card": "model card written",
    "invite_voter": "voter invited",
    "revoke_voter": "invitation revoked",
    "add_model": "model added",
    "remove_model": "model removed",
    "sleep_model": "model put to sleep",
    "wake_model": "model woken",
    "move_model": "model moved",
}
