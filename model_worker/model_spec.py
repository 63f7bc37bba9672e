"""What a worker is asked to serve: a name, and the source of the model."""

from dataclasses import dataclass
from pathlib import Path

from engine.model_files import gguf_name, is_later_part
from wire.hosted_models import HostedModel, is_hosted
from wire.model_names import is_model_name


@dataclass(frozen=True, slots=True)
class AdapterSource:
    """A LoRA adapter: the name of the model of the same worker that it changes, and its PEFT folder."""

    base: str
    folder: str


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model by its name. `source`: a folder in Hugging Face layout, a GGUF file, a hub id, a model of another server
    (wire/hosted_models.py), or BASE+FOLDER: the adapter in that folder, on the model BASE of the same worker."""

    name: str
    source: str

    @property
    def adapter(self) -> AdapterSource | None:
        """None: it is no adapter. A path with a plus sign that exists is a model."""
        base, is_adapter, folder = self.source.partition("+")
        if is_hosted(self.source) or not is_adapter or not is_model_name(base) or Path(self.source).exists():
            return None
        return AdapterSource(base, folder)

    @classmethod
    def parse(cls, text: str) -> "ModelSpec":
        """From `NAME=SOURCE`, or from a source alone, which is then named after its folder, GGUF file or hosted model,
        or is a hub id. Raises ValueError for a hosted model that is not understood."""
        if is_hosted(text):
            return cls(HostedModel.parse(text).model, text)
        name, has_name, source = text.partition("=")
        if has_name:
            return cls(name, source)
        path = Path(text)
        if path.suffix == ".gguf":
            return cls(gguf_name(path), text)  # a link of the hub's cache leads to a file without a name
        return cls(text if not path.exists() else path.resolve().name, text)

    @property
    def is_hosted(self) -> bool:
        """Whether another server computes it."""
        return is_hosted(self.source)

    def __str__(self) -> str:
        return f"{self.name}={self.source}"


def models_in(folder: Path) -> tuple[ModelSpec, ...]:
    """Every model folder and GGUF file that lies in `folder`, by name. Raises OSError."""
    found = []
    for path in sorted(folder.iterdir()):
        if path.suffix == ".gguf" and path.is_file():
            if not is_later_part(path):
                found.append(ModelSpec(gguf_name(path), str(path.absolute())))
        elif (path / "config.json").is_file():
            found.append(ModelSpec(path.name, str(path.absolute())))
    return tuple(found)
