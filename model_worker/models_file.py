"""The file that outlives a worker process: which models were added to it, and which were removed from it.

The worker is its only writer while it runs. It is written by renaming, so that a crash leaves the old list or the new.
"""

import os
from pathlib import Path

from pydantic import ValidationError

from model_worker.errors import BadSettings
from model_worker.model_spec import ModelSpec
from wire.served_models import AddModel, KeptModels


class ModelsFile:
    """Owns the file; `path` None keeps nothing. Raises BadSettings for a file that cannot be read or written."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._kept = self._read()

    @property
    def added(self) -> tuple[ModelSpec, ...]:
        """Models that were added."""
        return tuple(ModelSpec(model.name, model.source) for model in self._kept.added)

    @property
    def removed(self) -> frozenset[str]:
        """Names of models that were removed."""
        return frozenset(self._kept.removed)

    def note_added(self, spec: ModelSpec) -> None:
        """Keep a model that was added."""
        others = tuple(model for model in self._kept.added if model.name != spec.name)
        added = (*others, AddModel(name=spec.name, source=spec.source))
        self._write(KeptModels(added=added, removed=tuple(name for name in self._kept.removed if name != spec.name)))

    def note_removed(self, name: str) -> None:
        """Keep that a model was removed."""
        added = tuple(model for model in self._kept.added if model.name != name)
        removed = tuple(sorted({*self._kept.removed, name}))
        self._write(KeptModels(added=added, removed=removed))

    def _read(self) -> KeptModels:
        if self._path is None:
            return KeptModels()
        try:
            return KeptModels.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return KeptModels()
        except (OSError, ValidationError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it holds no list of models"
            raise BadSettings(f"cannot read {self._path}: {reason}") from None

    def _write(self, kept: KeptModels) -> None:
        self._kept = kept
        if self._path is None:
            return
        partial = self._path.with_suffix(".new")
        try:
            with open(partial, "w", encoding="utf-8") as file:
                file.write(kept.model_dump_json(indent=1))
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self._path)
        except OSError as error:
            raise BadSettings(f"cannot write {self._path}: {error.strerror}") from None
