"""Fields of EngineConfig: their descriptions, bounds, and which values are refused."""

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

from engine.config import EngineConfig, usable_kv_dtypes
from engine.idle_threads import bounded_spinning
from engine.settings import Setting, check_settings, setting_fields


@dataclass(frozen=True)
class Oven:
    heat: Annotated[Literal["top", "both"], Setting("Where the heat comes from")] = "both"
    minutes: Annotated[int | None, Setting("Baking time", minimum=1, name="time")] = None
    share: Annotated[float, Setting("Share of the full power", above=0, maximum=1)] = 0.5


@dataclass(frozen=True)
class Undescribed:
    minutes: int = 3


def test_a_field_says_all_that_a_service_needs() -> None:
    heat, minutes, _ = setting_fields(Oven)
    assert (heat.name, heat.choices, heat.default) == ("heat", ("top", "both"), "both")
    assert (minutes.field, minutes.name, minutes.type, minutes.choices) == ("minutes", "time", int | None, ())


def test_a_field_without_a_description_is_a_mistake() -> None:
    with pytest.raises(TypeError, match=r"Undescribed\.minutes needs one Setting"):
        setting_fields(Undescribed)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (Oven(heat="bottom"), "heat must be top or both, got 'bottom'"),  # type: ignore[arg-type]
        (Oven(minutes=0), "minutes must be at least 1, got 0"),
        (Oven(share=0.0), "share must be above 0 and at most 1, got 0.0"),
        (Oven(share=1.5), "share must be above 0 and at most 1, got 1.5"),
    ],
)
def test_a_value_out_of_bounds_is_refused_in_one_sentence(wrong: Oven, sentence: str) -> None:
    with pytest.raises(ValueError) as raised:
        check_settings(wrong)
    assert str(raised.value) == sentence


def test_values_at_the_bounds_are_allowed() -> None:
    for oven in (Oven(), Oven(minutes=1, share=1.0), Oven(heat="top")):
        check_settings(oven)


@pytest.mark.parametrize(
    "wrong", [{"page_tokens": 0}, {"swap_bytes": -1}, {"load_format": "pickle"}, {"device": "gpu"}]
)
def test_an_engine_is_not_configured_with_a_value_that_is_not_allowed(wrong: dict[str, object]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name} must be"):
        EngineConfig("model", **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("capability", "has_fp8"), [(None, False), ((8, 0), False), ((8, 9), True), ((9, 0), True)])
def test_fp8_is_usable_where_the_device_computes_it(capability: tuple[int, int] | None, has_fp8: bool) -> None:
    assert ("fp8" in usable_kv_dtypes(capability)) == has_fp8


@pytest.mark.parametrize(("num_threads", "is_bounded"), [(1, False), (2, True), (3, True)])
def test_spinning_is_bounded_where_no_core_is_left(num_threads: int, is_bounded: bool) -> None:
    assert bool(bounded_spinning(num_threads, num_cores=2)) == is_bounded
