"""Parts that run battles, record votes and fit leaderboards."""

from collections.abc import Callable
from dataclasses import dataclass

from controller.assembly.base import Base
from controller.assembly.journal import JournalParts, build_journal
from controller.assembly.workers import WorkerParts
from controller.battles.battle_store import BattleStore
from controller.battles.battles import Battles
from controller.battles.identity_guard import IdentityGuard
from controller.battles.matchmaking import Matchmaker
from controller.battles.sharing import Sharing
from controller.battles.turn_runner import TurnRunner
from controller.battles.turn_stream import TurnStream
from controller.battles.turn_takeover import TurnTakeover
from controller.battles.turn_taking import TurnTaking
from controller.battles.turn_tools import TurnTools
from controller.battles.voters import Voters
from controller.config import Settings
from controller.votes.boards.checkpoints import Checkpoints
from controller.votes.boards.fitter import Fitter
from controller.votes.boards.history import FittedDays
from controller.votes.boards.leaderboards import Leaderboards
from controller.votes.boards.model_cards import ModelCards
from controller.votes.feedback import Feedback
from controller.votes.integrity.findings import Rules
from controller.votes.integrity.judge import Judge
from controller.votes.rated import ReadingPace
from controller.votes.vote_casting import VoteCasting
from controller.votes.vote_log import VoteLog


@dataclass(frozen=True)
class BattleParts:
    """Parts that run battles, record votes and fit leaderboards."""

    store: BattleStore
    runner: TurnRunner
    takeover: TurnTakeover
    matchmaker: Matchmaker
    tools: TurnTools
    battles: Battles
    stream: TurnStream
    sharing: Sharing
    votes: VoteCasting
    feedback: Feedback
    log: VoteLog
    boards: Leaderboards
    cards: ModelCards
    judge: Judge
    voters: Voters
    journal: JournalParts | None


def build_battle_parts(settings: Settings, base: Base, workers: WorkerParts) -> BattleParts:
    """Build what draws, answers, votes on and rates battles. Opens the journal, if there is one."""
    metrics, keys, store = base.metrics, base.keys, base.store
    table, dispatcher = workers.table, workers.dispatcher
    voters = Voters.from_settings(settings.voter_key.get_secret_value(), settings.admin_token.get_secret_value())
    log = VoteLog(store, keys)
    cards = ModelCards(store, keys, table.store_time)
    boards = Leaderboards(
        log,
        metrics,
        cards,
        models=lambda: table.snapshot.models,
        clock=table.store_time,
        refresh_s=settings.board_refresh_s,
        fitter=Fitter(settings.boards_dir),
        days=FittedDays(settings.boards_dir),
        anchor=settings.board_anchor,
        checkpoints=None if settings.boards_dir is None else Checkpoints(settings.boards_dir),
    )
    matchmaker = Matchmaker(
        lambda: cards.in_service(table.ready_models()),
        dispatcher.has_room,
        lambda: boards.counts,
        lambda models: dispatcher.refused_for_room(models, "battle"),
        mode=settings.pairing,
        weight=base.state.weight,
    )
    battle_store = BattleStore(store, keys, battle_ttl_s=settings.battle_ttl_s, ownership_s=settings.owner_lease_s)
    tools = TurnTools(
        relay=workers.relay,
        dispatcher=dispatcher,
        matchmaker=matchmaker,
        waking=workers.waking,
        identity=IdentityGuard(lambda: table.snapshot.models),
        metrics=metrics,
        prompt_key=voters.prompt_key,
        cache_salt=base.salts.of_battle,
        trails=base.trails,
        max_tokens=settings.battle_max_tokens,
        thinking_budget=settings.thinking_budget,
        admission_wait_s=settings.admission_wait_s,
        replay_wait_s=settings.replay_wait_s,
        paced=settings.paced,
    )
    runner = TurnRunner(battle_store, tools, flush_s=settings.flush_s, patience_s=settings.store_patience_s)
    battles = Battles(
        battle_store,
        table,
        dispatcher,
        matchmaker,
        TurnTaking(battle_store, runner),
        voters,
        metrics,
        base.trails,
        is_withdrawn=lambda model: cards.is_retired(model) or base.state.is_off(model),
        max_turns=settings.max_turns,
        max_content_chars=settings.max_content_chars,
    )
    journal = None if settings.journal_dir is None else build_journal(settings, base, log, battle_store)
    return BattleParts(
        store=battle_store,
        runner=runner,
        takeover=TurnTakeover(battle_store, runner, ownership_s=settings.owner_lease_s),
        matchmaker=matchmaker,
        tools=tools,
        battles=battles,
        stream=TurnStream(battle_store, patience_s=settings.store_patience_s),
        sharing=Sharing(
            store,
            keys,
            battle_store,
            voters,
            kept_s=settings.kept_voted_s,
            shared_s=settings.shared_battle_ttl_s,
        ),
        votes=VoteCasting(
            store,
            keys,
            battle_store,
            voters,
            metrics,
            base.trails,
            None if journal is None else journal.journal,
            # With a journal the archiver sets the lifetime, once the texts are archived.
            voted_battle_ttl_s=settings.kept_voted_s if journal is None else 0,
            pace=ReadingPace(settings.min_read_s, settings.max_read_chars_per_s),
        ),
        feedback=Feedback(store, keys, battle_store, voters, None if journal is None else journal.journal),
        log=log,
        boards=boards,
        cards=cards,
        judge=_build_judge(settings, base, log, boards, journal, clock=table.store_time),
        voters=voters,
        journal=journal,
    )


def _build_judge(
    settings: Settings,
    base: Base,
    log: VoteLog,
    boards: Leaderboards,
    journal: JournalParts | None,
    *,
    clock: Callable[[], float],
) -> Judge:
    rules = Rules(
        surprise_limit=settings.surprise_limit,
        voter_cap=settings.voter_cap,
        address_cap=settings.address_cap,
        prompt_cap=settings.prompt_cap,
        probation_votes=settings.probation_votes,
    )
    return Judge(base.store, base.keys, log, boards, journal.journal if journal else None, rules, clock=clock)
