"""Models that come and go: what a worker process serves, in which state, and what an administrator asks of it.

`GET`, `POST /internal/models` and `POST /internal/models/{sleep,wake,remove}` of a worker; the controller's
`/arena/admin/served` is the same over all worker processes.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from wire.ids import WorkerId
from wire.model_names import ModelName
from wire.workers import ChatForm

MAX_MODELS = 16  #: that one worker process serves
MAX_SOURCE_CHARS = 8192

#: `loading`: not yet in memory for the first time; `draining`: it finishes its answers and is then removed.
Residence = Literal["resident", "asleep", "on_disk", "loading", "draining", "failed"]
#: A folder in Hugging Face layout, a GGUF file or a hub id, as the worker's machine finds it, or a model of another
#: server (hosted_models.py).
Source = Annotated[str, Field(min_length=1, max_length=MAX_SOURCE_CHARS, pattern=r"^[^\x00-\x1f]+$")]


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AddModel(_Frozen):
    """Body of a worker's `POST /internal/models`."""

    name: ModelName
    source: Source = Field(
        description="folder, GGUF file, hub id, or openai:MODEL@URL (docs/hosted.md), as the worker's machine finds it"
    )


class NamedModel(_Frozen):
    """Body of a worker's `POST /internal/models/{sleep,wake,remove}`."""

    name: ModelName


class ServedModel(_Frozen):
    """One model of a worker process."""

    name: ModelName
    source: str
    residence: Residence
    memory_bytes: int = Field(description="weights in memory now, and its pages of the page pool")
    wanted_bytes: int = Field(description="its weights when it is resident, and a page pool that it has to itself")
    running: int = Field(description="answers that it is writing")
    waiting: int = Field(description="answers that wait, for a place or for the model to wake")
    idle_s: float = Field(description="seconds since its last answer, or since it was added")
    wake_s: float | None = Field(default=None, description="seconds that its last waking took; null: none yet")
    error: str | None = Field(default=None, description="why it could not be loaded")
    problem: str | None = Field(default=None, description="a hosted model: what its operator should know")
    chat: ChatForm = Field(default="template", description="none: a base model, which battles and chats leave out")


class ServedModels(_Frozen):
    """Answer of a worker's `GET /internal/models`."""

    models: tuple[ServedModel, ...]
    pool_bytes: int = Field(default=0, description="page pool that the models share; 0: each has its own")
    memory_bytes: int = Field(description="the page pool, and the weights of all models that are in memory now")
    memory_limit: int | None = Field(default=None, description="bytes that they may take together; null: no limit")


class WorkerModels(ServedModels):
    """The models of one worker process, as the controller lists them."""

    url: str = Field(description="of the process; it names it")
    worker_ids: dict[str, WorkerId] = Field(description="by model: its registration")


class KeptModels(_Frozen):
    """Content of the file in which a worker keeps what was changed while it ran (`AGON_MODELS_FILE`)."""

    added: tuple[AddModel, ...] = ()
    removed: tuple[str, ...] = Field(default=(), description="not served, though settings or a folder offer them")


class AdminServed(_Frozen):
    """Answer of `GET /arena/admin/served`: every worker process that answers, and the URLs of those that do not."""

    processes: tuple[WorkerModels, ...]
    silent: tuple[str, ...] = ()


_Reason = Annotated[str, Field(max_length=500, description="why; it is kept in the log of actions")]
_Process = Annotated[
    str | None,
    Field(max_length=512, description="a worker id or the URL of a worker process; null: the one that suits best"),
]


class AdminAddModel(AddModel):
    """Body of `POST /arena/admin/served`."""

    worker: _Process = None
    reason: _Reason = ""


class AdminActOnModel(_Frozen):
    """Body of `POST /arena/admin/served/act`."""

    name: ModelName
    action: Literal["sleep", "wake", "remove", "move"]
    worker: _Process = None
    to: str | None = Field(default=None, max_length=512, description="move: a worker id or the URL of a worker process")
    reason: _Reason = ""
