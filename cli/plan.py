"""`agon plan MODEL`: how the page pool would be cut for a model, and what a request of each length would waste; with
several models, how one pool would be cut for all of them, and what that costs each.

Reads a config.json and no weights. For an architecture that Agon serves, the model code says what its layers store, so
the plan is the worker's, to the byte; that code needs torch.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, cast, get_args

import typer
from rich.console import Console
from rich.table import Table

from cli.errors import CliError
from cli.model_config import read_model_config, weights_line
from engine.errors import CheckpointError
from engine.memory.planning.designs import Design
from engine.memory.planning.layer_tables import ModelLayers, PlannedKVDType
from engine.memory.planning.model_configs import CONFIGS
from engine.memory.planning.planner import MAX_PAGE_TABLES, REPORT_LENGTHS, Capacity, PlanReport, plan_layers
from engine.memory.planning.together import StoredModel, plan_together
from engine.memory.spec import LayerType

app = typer.Typer(add_completion=False)

_DTYPES = ("auto", "bfloat16", "float32")
#: Names of torch that the flags call otherwise; specs from model code have the name of torch.
_FLAG_VALUES = {"float8_e4m3fn": "fp8"}
_GIB = 2**30
_THROUGH_TRANSFORMERS = (
    "Agon has no code of its own for this architecture: transformers' modelling code runs it on these pages, slower "
    "(docs/models.md says how much)."
)
_NOT_SERVED = (
    "No worker of Agon can run this: some of its storage comes from rules about config.json, not from model code "
    "(docs/models.md lists what is served)."
)


@app.command()
def plan(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL_OR_CONFIG]",
            help=f"A folder, a config.json, a hub id, or one of {', '.join(CONFIGS)}.",
            show_default=False,
        ),
    ] = None,
    more: Annotated[
        list[str] | None,
        typer.Option("--model", help="A model of several that share one pool; repeatable.", show_default=False),
    ] = None,
    page_tokens: Annotated[int, typer.Option(min=1, help="Tokens in a small page.")] = 16,
    kv_dtype: Annotated[
        str,
        typer.Option(
            help=f"Data type of keys and values in pages: {', '.join(get_args(PlannedKVDType))}. "
            "Recurrent states keep the model's."
        ),
    ] = "auto",
    dtype: Annotated[
        str,
        typer.Option(
            help=f"Data type of the model: {', '.join(_DTYPES)}. auto: the checkpoint's own, as on CUDA; "
            "on CPU a worker runs small models in float32."
        ),
    ] = "auto",
    lengths: Annotated[
        str | None,
        typer.Option(
            help="Lengths of requests in tokens, separated by commas. Default: "
            f"{', '.join(map(str, REPORT_LENGTHS))}, as far as the model's context, and the context."
        ),
    ] = None,
    pool_gib: Annotated[float, typer.Option(help="Size of the pool for the capacity figures, in GiB.")] = 16.0,
    max_page_tables: Annotated[int, typer.Option(min=1, help="Most page tables of one sequence.")] = MAX_PAGE_TABLES,
    vision_cache: Annotated[bool, typer.Option(help="Keep the embeddings of images in the same pool.")] = False,
    kv_budget: Annotated[
        int | None,
        typer.Option(
            min=16, help="Tokens that a layer keeps of a sequence, on average, as on a worker with --kv-budget (CPU)."
        ),
    ] = None,
    max_adapters: Annotated[int, typer.Option(min=0, help="LoRA adapters beside the model, as on a worker.")] = 0,
    max_adapter_rank: Annotated[int, typer.Option(min=1, max=128, help="Largest rank of an adapter.")] = 64,
    as_json: Annotated[bool, typer.Option("--json", help="Print data instead of tables.")] = False,
) -> None:
    """Print the page plan of MODEL: layer types, page sizes, and the waste of every design at several lengths. With
    several models: the plan of one pool for all of them."""
    models = [*([model] if model is not None else []), *(more or [])]
    if not models:
        raise CliError("name a model, or several with --model A --model B")
    for flag, value, choices in (("--kv-dtype", kv_dtype, get_args(PlannedKVDType)), ("--dtype", dtype, _DTYPES)):
        if value not in choices:
            raise CliError(f"{flag} must be one of {', '.join(choices)}, not {value!r}")
    from engine.models.stored_layers import adapter_bytes, layers_from_config  # imports torch
    from engine.models.weight_sizes import weight_bytes

    def layers_of(name: str, config: Mapping[str, Any]) -> ModelLayers:
        try:
            return layers_from_config(
                config,
                dtype=dtype,
                kv_dtype=cast(PlannedKVDType, kv_dtype),
                with_vision=vision_cache,
                allow_transformers=True,
                kv_budget=kv_budget,
                page_tokens=page_tokens,
            )
        except (CheckpointError, ValueError) as error:
            raise CliError(f"{name}: {error}") from None

    if len(models) > 1:
        found = [(name, layers_of(name, config)) for name, config in map(read_model_config, models)]
        _print_together(found, page_tokens, int(pool_gib * _GIB), as_json=as_json)
        return
    name, config = read_model_config(models[0])
    model_layers = layers_of(name, config)
    try:
        report = plan_layers(
            model_layers.layers,
            page_tokens=page_tokens,
            lengths=_within(model_layers.max_model_len) if lengths is None else _numbers(lengths),
            image_tokens=model_layers.image_tokens,
            max_page_tables=max_page_tables,
        )
        capacity = report.capacity(int(pool_gib * _GIB), model_layers.max_model_len)
        bytes_each = adapter_bytes(config, max_adapter_rank, dtype=dtype) if max_adapters else 0
        weights = weight_bytes(config) if model_layers.is_served else {}
    except (CheckpointError, ValueError) as error:
        raise CliError(f"{name}: {error}") from None
    if as_json:
        data = {**_as_data(name, report, capacity, model_layers), "weights_bytes": weights}
        if max_adapters:
            data["adapters"] = {"count": max_adapters, "rank": max_adapter_rank, "bytes_each": bytes_each}
        print(json.dumps(data, indent=2))
        return
    _print_tables(name, report, capacity, model_layers)
    if weights:
        print(f"Weights: {weights_line(weights)} (int8 and int4: --weights, on a CPU; a tied embedding is kept once).")
    if max_adapters:
        print(
            f"{max_adapters} adapters of rank {max_adapter_rank} on all layers take {_size(max_adapters * bytes_each)} "
            "beside the pool: on CUDA from the start, on a CPU as much as those have that are loaded."
        )


def _print_together(models: list[tuple[str, ModelLayers]], page_tokens: int, pool_bytes: int, *, as_json: bool) -> None:
    """models: names and layers; a model may come twice."""
    stored = {
        name if [other for other, _ in models].count(name) == 1 else f"{name}#{index}": StoredModel(
            layers.layers, page_tokens
        )
        for index, (name, layers) in enumerate(models, start=1)
    }
    try:
        together = plan_together(stored, pool_bytes=pool_bytes)
    except ValueError as error:
        raise CliError(str(error)) from None
    if as_json:
        data = {
            "large_page_bytes": together.large_page_bytes,
            "fits_well": together.fits_well,
            "models": {
                name: {
                    "types": _type_data(design),
                    "waste": together.waste[name],
                    "waste_alone": together.waste_alone[name],
                }
                for name, design in together.designs.items()
            },
        }
        print(json.dumps(data, indent=2))
        return
    console = Console()
    console.print(f"[bold]One pool for {len(stored)} models[/]: large pages of {_size(together.large_page_bytes)}")
    table = Table("model", "tables", "small pages", "waste", "alone", "cost", box=None)
    for name, design in together.designs.items():
        pages = ", ".join(dict.fromkeys(_size(kind.small_page_bytes) for kind in design.types))
        costs = f"{together.waste[name]:.1%}", f"{together.waste_alone[name]:.1%}", f"{together.cost[name]:+.1%}"
        table.add_row(name, str(design.num_page_tables), pages, *costs)
    console.print(table)
    console.print("Waste: expected over the live bytes of chats; alone: in a pool of its own.")
    if not together.fits_well:
        console.print(
            "They do not fit well: a pool for each would waste less, but could not lend memory to the others."
        )


def _within(context: int | None) -> list[int]:
    """The usual lengths below the context, and the context itself. None: the model has no longest request."""
    if context is None:
        return list(REPORT_LENGTHS)
    return [*(length for length in REPORT_LENGTHS if length < context), context]


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(part.strip().replace("_", "")) for part in text.split(",") if part.strip()]
    except ValueError:
        raise CliError(f"--lengths must be numbers separated by commas, not {text!r}") from None
    if not numbers or min(numbers) < 1:
        raise CliError("--lengths needs at least one positive number")
    return sorted(set(numbers))


def _as_data(name: str, report: PlanReport, capacity: Capacity, layers: ModelLayers) -> dict[str, Any]:
    chosen = report.chosen
    return {
        "model": name,
        "is_served": layers.is_served,
        "through_transformers": layers.through_transformers,
        "types": _type_data(chosen),
        "large_page_bytes": chosen.large_page_bytes,
        "num_page_tables": chosen.num_page_tables,
        "lengths": list(report.lengths),
        "image_tokens": report.image_tokens,
        "live_bytes": {str(length): report.live(length) for length in report.lengths},
        "designs": {
            design_name: {
                "types": _type_data(design),
                "large_page_bytes": design.large_page_bytes,
                "num_page_tables": design.num_page_tables,
                "bytes": {str(length): report.held(design_name, length) for length in report.lengths},
                "waste": {str(length): report.waste(design_name, length) for length in report.lengths},
            }
            for design_name, design in report.designs.items()
        },
        "capacity": {
            "pool_bytes": capacity.pool_bytes,
            "large_pages": capacity.num_large_pages,
            "pages": dict(zip((kind.name for kind in chosen.types), capacity.num_pages, strict=True)),
            "tokens": capacity.num_tokens,
            "max_model_len": layers.max_model_len,
            "requests_of_max_length": capacity.num_max_length_requests,
        },
        "reason": report.reason,
    }


def _type_data(design: Design) -> list[dict[str, Any]]:
    return [
        {
            "name": kind.name,
            "kind": kind.spec.kind,
            "model": kind.spec.model,
            "dtype": _FLAG_VALUES.get(kind.spec.dtype, kind.spec.dtype),
            "num_layers": len(kind.layer_ids),
            "tokens_per_page": kind.page_tokens,
            "small_page_bytes": kind.small_page_bytes,
            "padding_bytes": kind.padding_bytes,
            "ratio": design.ratio(kind),
        }
        for kind in design.types
    ]


def _print_tables(name: str, report: PlanReport, capacity: Capacity, layers: ModelLayers) -> None:
    console = Console()
    chosen = report.chosen
    tables = "1 page table" if chosen.num_page_tables == 1 else f"{chosen.num_page_tables} page tables"
    console.print(f"[bold]{name}[/]: large pages of {_size(chosen.large_page_bytes)}, {tables}")
    types = Table(box=None)
    for column in ("type", "span", "tables", "layers", "tokens", "small page", "ratio"):
        types.add_column(column, no_wrap=True)
    for alike in _alike(chosen.types):
        kind = alike[0]
        types.add_row(
            kind.name.partition("/")[0],
            str(kind.spec.span or ""),
            str(len(alike)),
            str(len(kind.layer_ids)),
            str(kind.page_tokens),
            _size(kind.small_page_bytes),
            str(chosen.ratio(kind)),
        )
    console.print(types)
    waste = Table("tokens", "live", *(f"{design}" for design in report.designs), box=None)
    for length in report.lengths:
        cells = (
            f"{_size(report.held(design, length))} +{report.waste(design, length):.1%}" for design in report.designs
        )
        waste.add_row(f"{length:,}", _size(report.live(length)), *cells)
    console.print("\nBytes that one request holds, and waste over its live bytes:", waste)
    if report.image_tokens:
        console.print(f"Each request has one image of {report.image_tokens:,} tokens.")
    console.print(f"\n{report.reason}")
    console.print(
        f"A pool of {_size(capacity.pool_bytes)} has {capacity.num_large_pages:,} large pages: one request of up to "
        f"{capacity.num_tokens:,} tokens, or {capacity.num_max_length_requests:,} of {layers.max_model_len:,} at once."
    )
    if not layers.is_served:
        console.print(_NOT_SERVED)
    elif layers.through_transformers:
        console.print(_THROUGH_TRANSFORMERS)


def _alike(types: Iterable[LayerType]) -> list[list[LayerType]]:
    """Parts of one type with the same number of layers together."""
    groups: dict[tuple[str, int], list[LayerType]] = {}
    for kind in types:
        groups.setdefault((kind.name.partition("/")[0], len(kind.layer_ids)), []).append(kind)
    return list(groups.values())


def _size(num_bytes: int) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if num_bytes >= factor:
            return f"{num_bytes / factor:,.2f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{num_bytes} B"
