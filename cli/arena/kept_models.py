"""What a worker has kept of the models that were added or removed while it ran. The worker alone writes the file."""

from pathlib import Path

from pydantic import ValidationError

from cli.errors import CliError
from wire.served_models import KeptModels


def read_kept(path: Path) -> KeptModels:
    """The list in the file; an empty one where there is none. Raises CliError."""
    try:
        return KeptModels.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return KeptModels()
    except (OSError, ValidationError):
        raise CliError(f"cannot read {path}; correct it, or delete it to forget what was added and removed.") from None
