"""The models that have worker processes of their own, and how many: the file in which an arena keeps them.

`agon up` is the only writer while it runs. It writes by renaming, so that a crash leaves the old list or the new one.
"""

import os
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from cli.arena.placement.placement import MAX_REPLICAS, Needs, Replica
from cli.errors import CliError
from wire.model_names import ModelName
from wire.served_models import Source


class ReplicaGroup(BaseModel):
    """A model and its replicas. With `most` above `least` their number follows the load."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: ModelName
    source: Source
    needs: Needs = Needs()
    replicas: int = Field(default=1, ge=1, le=MAX_REPLICAS)
    least: int = Field(default=1, ge=1, le=MAX_REPLICAS)
    most: int = Field(default=MAX_REPLICAS, ge=1, le=MAX_REPLICAS)
    is_scaled: bool = Field(default=False, description="the number follows the load, between least and most")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.least > self.most:
            raise ValueError(f"the least number of replicas, {self.least}, is above the most, {self.most}")
        if self.is_scaled and not self.least <= self.replicas <= self.most:
            raise ValueError(f"{self.replicas} replicas are not between {self.least} and {self.most}")
        return self

    def wanted(self) -> tuple[Replica, ...]:
        """The replicas that should run."""
        return tuple(
            Replica(id=f"{self.model}#{number}", model=self.model, source=self.source, needs=self.needs)
            for number in range(1, self.replicas + 1)
        )


class _Groups(BaseModel):
    """Content of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    groups: tuple[ReplicaGroup, ...] = ()


class GroupsFile:
    """Reads and writes the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> tuple[ReplicaGroup, ...]:
        """The groups of the file; none where there is no file. Raises CliError."""
        try:
            return _Groups.model_validate_json(self._path.read_bytes()).groups
        except FileNotFoundError:
            return ()
        except (OSError, ValidationError):
            raise CliError(f"cannot read {self._path}; correct it, or delete it to forget the replicas.") from None

    def write(self, groups: tuple[ReplicaGroup, ...]) -> None:
        """Replace the content. Raises CliError."""
        try:
            write_whole(self._path, _Groups(groups=groups).model_dump_json(indent=1))
        except OSError as error:
            raise CliError(f"cannot write {self._path}: {error.strerror}.") from None


def write_whole(path: Path, text: str, *, is_durable: bool = True) -> None:
    """Write a new file, only for this user, and give it the name when it is complete; `is_durable`: and on disk. Raises
    OSError."""
    partial = path.with_suffix(".new")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        if is_durable:
            os.fsync(file.fileno())
    partial.replace(path)
