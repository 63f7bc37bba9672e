"""Every Redis key of the arena: its type, content and lifetime, each with the reason. No other file names a key.

Ids in keys have the types of wire/ids.py, so that no text of a client names a key.

To add a key:

1. Add a property or method to Keys. The docstring says `<Redis type>: <content>. <TTL and its reason>`. A constant TTL
   stands above the class; a TTL that operators set is a field of controller/config.py.
2. Write it by one script in lua/ when the write belongs together with another one, or depends on what is there. A
   script gets its keys as KEYS and sets the TTL itself, so that no key is left without one.
3. Read and write it in one class, which owns it: WorkerRegistry, RoutingTable, Dispatcher, BattleStore, ChatStore,
   VoteLog, LogRestorer, Invitations, ArenaState, ActionLog, FailureLog, Terms, RateLimiter. Values are plain text, JSON
   or wire types, never pickles.
4. Add it to tests/controller/store/test_keys.py. A key of a released version keeps its name and its format, because a
   store outlives the upgrade of its controllers; a new format gets a new name.

One Redis without cluster mode: the vote script writes a battle and the vote log in one step, and a cluster would place
them on different nodes. All times inside values are milliseconds of Redis TIME, because the clocks of controllers
differ.
"""

from dataclasses import dataclass

from wire.ids import BattleId, ChatId, Pseudonym, ShareId, WorkerId

#: The set of a worker's leases outlives the end of its last lease by this much. It has a TTL because expired leases are
#: removed only when a request is sent to the worker, and none is sent to a worker that has left.
LEASES_GRACE_MS = 60_000
#: Events serve browsers that reconnect: an hour covers a closed laptop. Older turns are read from the battle itself.
EVENTS_TTL_MS = 3_600_000
#: A day and the hour that has begun.
FAILURES_TTL_MS = 25 * 3_600_000
#: A visitor who has not begun a battle for so long has a new cookie, most likely.
HISTORY_TTL_MS = 180 * 86_400_000
#: A day longer than a battle without a vote is kept, by default.
TRAIL_TTL_MS = 2 * 86_400_000
#: Pieces of a restoration follow one another within milliseconds; a minute covers a store that hangs.
BUILT_LOG_TTL_MS = 60_000


@dataclass(frozen=True)
class TurnKeys:
    """The keys of one kind of conversation, as the scripts take them that begin, write and claim turns."""

    prefix: str  #: of the key of a conversation
    events_suffix: str  #: makes the key of its events from it
    turns: str  #: index of the running turns

    def conversation(self, battle_id: BattleId) -> str:
        """The hash of one conversation."""
        return self.prefix + battle_id

    def events(self, battle_id: BattleId) -> str:
        """The stream of its events."""
        return self.conversation(battle_id) + self.events_suffix


@dataclass(frozen=True)
class Keys:
    """Key names under one prefix (AGON_KEY_PREFIX), so that two arenas can share one Redis."""

    prefix: str

    @property
    def fence(self) -> str:
        """String: written after a vote, so that WAITAOF waits for it and for everything before it. No TTL: one small
        value."""
        return f"{self.prefix}:fence"

    # Workers

    @property
    def workers(self) -> str:
        """Sorted set: worker id -> end of its registration in ms. No TTL: expired members are removed whenever a
        routing table is read."""
        return f"{self.prefix}:workers"

    def worker(self, worker_id: WorkerId) -> str:
        """Hash: registration, its lifetime in ms, state, load. TTL AGON_WORKER_LEASE_S, renewed by each heartbeat: a
        dead worker vanishes by itself."""
        return self.worker_prefix + worker_id

    @property
    def worker_prefix(self) -> str:
        """Prefix of the keys `worker`: the script that reads the routing table gets worker ids only while it runs."""
        return f"{self.prefix}:worker:"

    @property
    def epoch(self) -> str:
        """String: the last epoch given to a worker. No TTL: epochs must always grow."""
        return f"{self.prefix}:epoch"

    @property
    def models(self) -> str:
        """Hash: model name -> JSON of its last model card. No TTL: boards list models whose workers are away."""
        return f"{self.prefix}:models"

    def leases(self, worker_id: WorkerId) -> str:
        """Sorted set: id of a capacity lease -> its end in ms. TTL AGON_SLOT_LEASE_S + LEASES_GRACE_MS. The members are
        counted, there is no counter: leases of a crashed controller expire without anything to correct."""
        return self.leases_prefix + worker_id

    @property
    def leases_prefix(self) -> str:
        """Prefix of the keys `leases`, for the same script. `slots` is an older word for leases."""
        return f"{self.prefix}:slots:"

    def demand(self, worker_id: WorkerId, kind: str) -> str:
        """String: "1" while requests of this kind ("battle" or "chat") are refused at the worker. TTL DEMAND_MS from
        the last refusal: until then the other kind leaves half of the places to it."""
        return f"{self.prefix}:demand:{kind}:{worker_id}"

    # Battles

    def battle(self, battle_id: BattleId) -> str:
        """Hash: everything about a battle. TTL twice AGON_BATTLE_TTL_S from its last turn: a late visitor reads
        "expired" and not "no such battle". Once voted on: with a journal none until the transcript is archived, then
        AGON_VOTED_BATTLE_TTL_S; without one AGON_VOTED_BATTLE_TTL_S from the vote, or none where that is 0."""
        return self.battle_prefix + battle_id

    @property
    def battle_prefix(self) -> str:
        """Prefix of the keys `battle`: the script that claims turns gets battle ids only while it runs."""
        return f"{self.prefix}:battle:"

    def events(self, battle_id: BattleId) -> str:
        """Stream: events of the battle's turns; entry ids `turn-number` are the ids of the server-sent events. The
        field `private` (token ids, times) is for a controller that takes the turn over, never for a client. TTL
        EVENTS_TTL_MS, set when a turn begins."""
        return self.battle(battle_id) + self.events_suffix

    @property
    def events_suffix(self) -> str:
        """What makes the key `events` from the key `battle`, for the same script."""
        return ":events"

    @property
    def turns(self) -> str:
        """Sorted set: id of a battle whose turn is running -> end of its controller's ownership in ms. No TTL: a member
        is removed when its turn ends, and a turn whose ownership has ended is claimed by another controller."""
        return f"{self.prefix}:turns"

    def history(self, pseudonym: Pseudonym) -> str:
        """Sorted set: id of a battle of this voter -> ms of its beginning, the newest ones. TTL HISTORY_TTL_MS from the
        last battle, twice AGON_BATTLE_TTL_S while the voter has not shown the cookie. Battles that the store has
        forgotten are removed when the list is read."""
        return f"{self.prefix}:history:{pseudonym}"

    def trail(self, conversation: BattleId) -> str:
        """List: steps of a battle or chat, for the administrator (wire/trails.py). TTL TRAIL_TTL_MS from the last step:
        a question of why comes within a day or two."""
        return f"{self.prefix}:trail:{conversation}"

    def shared(self, share_id: ShareId) -> str:
        """String: id of the battle that this link shows. TTL AGON_SHARED_BATTLE_TTL_S, as long as the battle itself
        lives because of it; deleted when its visitor takes the link back."""
        return f"{self.prefix}:shared:{share_id}"

    @property
    def battle_turns(self) -> TurnKeys:
        """The keys of battles as turns use them."""
        return TurnKeys(self.battle_prefix, self.events_suffix, self.turns)

    # Chats

    def chat(self, chat_id: ChatId) -> str:
        """Hash: everything about a chat; the fields are those of a battle of one side. TTL AGON_CHAT_TTL_S from its
        beginning or its last turn; deleted before when its visitor has begun AGON_CHATS_PER_VISITOR newer ones."""
        return self.chat_prefix + chat_id

    @property
    def chat_prefix(self) -> str:
        """Prefix of the keys `chat`, for the scripts that claim turns and delete old chats."""
        return f"{self.prefix}:chat:"

    def chat_events(self, chat_id: ChatId) -> str:
        """Stream: events of the chat's turns, as `events` of battles. TTL EVENTS_TTL_MS, set when a turn begins."""
        return self.chat_turns.events(chat_id)

    @property
    def running_chats(self) -> str:
        """Sorted set: the same as `turns`, for chats: controllers of earlier releases know no chats, and claim none."""
        return f"{self.prefix}:chat-turns"

    @property
    def chat_turns(self) -> TurnKeys:
        """The keys of chats as turns use them."""
        return TurnKeys(self.chat_prefix, self.events_suffix, self.running_chats)

    def chats_of(self, pseudonym: Pseudonym) -> str:
        """Sorted set: id of a chat of this visitor -> ms of its beginning, AGON_CHATS_PER_VISITOR at most, of an
        address ten times as many. TTL AGON_CHAT_TTL_S from the beginning of a chat or turn in it."""
        return f"{self.prefix}:chats-of:{pseudonym}"

    # Votes

    @property
    def votes(self) -> str:
        """Stream: the vote log, from which every board is computed: votes, judgements and feedback on them. No TTL,
        never trimmed: votes are kept for ever.
        Fields of an entry: `record`, `time`, and `voter_day` in the entries of votes that were cast here."""
        return f"{self.prefix}:votes"

    @property
    def logged_battles(self) -> str:
        """Set: ids of the battles in the vote log, voted here or imported, and keys of its other records. No TTL:
        neither a second import of a file nor the import of this arena's own export may count a vote twice."""
        return f"{self.prefix}:logged"

    @property
    def format(self) -> str:
        """String: JSON of the format in which the store is kept, and of the release that wrote it (wire/releases.py).
        No TTL: an older release must never take the store for its own."""
        return f"{self.prefix}:format"

    @property
    def arena(self) -> str:
        """String: random id of this arena, which its journals name. No TTL: it keeps the journal of one arena from
        being restored into the store of another."""
        return f"{self.prefix}:arena"

    @property
    def restoration(self) -> str:
        """Hash: token, time and number of votes of the last restoration from a journal. No TTL: by the token all
        controllers notice that the log was replaced, and boards say when votes were brought back."""
        return f"{self.prefix}:restoration"

    def built_log(self, token: str) -> str:
        """Stream: a vote log that is being built from the log and a journal, and replaces the log when it is complete.
        TTL BUILT_LOG_TTL_MS, renewed by every piece: what a dead controller has begun goes away."""
        return f"{self.prefix}:votes:{token}"

    # Integrity

    @property
    def judge(self) -> str:
        """String: id of the controller that judges votes. TTL LEASE_MS of votes/integrity/judge.py, renewed by every
        round: when the judge dies, another controller takes its place."""
        return f"{self.prefix}:judge"

    @property
    def integrity(self) -> str:
        """String: JSON of the last round of the judge, up to which entry the log is judged, and the counts that clients
        see. No TTL: the next judge goes on there. It can be lost: then the whole log is judged again."""
        return f"{self.prefix}:integrity"

    # Voters

    @property
    def board_cards(self) -> str:
        """Hash: model name -> JSON of what a lab says of it. No TTL: a model with a card stays on the boards."""
        return f"{self.prefix}:cards"

    @property
    def invitations(self) -> str:
        """Hash: id of an invitation -> JSON of name, cohort, times. No TTL: it holds until it is revoked, and revoked
        ones stay listed."""
        return f"{self.prefix}:invitations"

    @property
    def invited(self) -> str:
        """Hash: name of an invited voter -> id of the invitation that holds. No TTL: a name is invited once."""
        return f"{self.prefix}:invited"

    # Administration

    @property
    def admin_state(self) -> str:
        """Hash: `model:NAME`, `worker:ID`, `notice:ID` or `terms` -> JSON of what an administrator has set. No TTL: it
        holds until it is set otherwise."""
        return f"{self.prefix}:admin"

    @property
    def actions(self) -> str:
        """Stream: every action of an administrator; field `action`, JSON. No TTL, never trimmed: it says who did
        what."""
        return f"{self.prefix}:actions"

    def failures(self, hour: int) -> str:
        """Hash: JSON of cause, model and worker -> count and time of the latest, in one hour of Unix time. TTL
        FAILURES_TTL_MS: the page shows a day."""
        return f"{self.prefix}:failures:{hour}"

    def accepted_terms(self, pseudonym: Pseudonym) -> str:
        """String: JSON of the version of the terms that a voter has accepted, and when. TTL that of the voter's cookie,
        a day for one who is known by an address."""
        return f"{self.prefix}:terms:{pseudonym}"

    # Rate limits

    def rate(self, kind: str, identity: str) -> str:
        """String: theoretical arrival time of the generic cell rate algorithm, in microseconds of Redis TIME. TTL until
        the bucket is full again: from then on the key would say the same as its absence."""
        return f"{self.prefix}:rate:{kind}:{identity}"
