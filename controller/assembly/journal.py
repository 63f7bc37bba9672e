"""Parts that keep votes and transcripts in files beside the store."""

from dataclasses import dataclass

from controller.assembly.base import Base
from controller.battles.battle_store import BattleStore
from controller.config import Settings
from controller.votes.journal.follower import VoteJournal
from controller.votes.journal.journal_file import JournalFile
from controller.votes.journal.restore import LogRestorer
from controller.votes.journal.transcripts import Archiver, TranscriptFiles
from controller.votes.vote_log import VoteLog


@dataclass(frozen=True)
class JournalParts:
    """Parts that keep votes and transcripts in files beside the store."""

    journal: VoteJournal
    archiver: Archiver
    files: TranscriptFiles


def build_journal(settings: Settings, base: Base, log: VoteLog, battles: BattleStore) -> JournalParts:
    """Open the journal in `settings.journal_dir`, which must be set, and build what writes and restores from it."""
    assert settings.journal_dir is not None
    restorer = LogRestorer(base.store, base.keys, log, battle_ttl_s=settings.battle_ttl_s)
    file = JournalFile.open(settings.journal_dir)
    files = TranscriptFiles(settings.journal_dir / "transcripts")
    return JournalParts(
        journal=VoteJournal(file, log, restorer, base.metrics),
        archiver=Archiver(
            base.store,
            base.keys,
            log,
            battles,
            files,
            ttl_s=settings.kept_voted_s,
            shared_ttl_s=settings.shared_battle_ttl_s,
        ),
        files=files,
    )
