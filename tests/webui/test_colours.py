"""Contrast of both themes by WCAG AA."""

import re
from pathlib import Path

import pytest

from webui.plots import MAX_HEAT

TOKENS = (Path(__file__).parents[2] / "webui/assets/styles/tokens.css").read_text()
AA_TEXT, AA_GRAPHICS = 4.5, 3.0

#: Text and background.
TEXT_PAIRS = [
    (text, ground) for text in ("ink", "muted", "link", "good", "bad") for ground in ("paper", "surface", "sunken")
] + [
    ("a", "a-soft"),
    ("b", "b-soft"),
    ("a", "surface"),
    ("b", "surface"),
    ("on-side", "a"),
    ("on-side", "b"),
    ("muted", "a-soft"),
    ("muted", "b-soft"),
    ("good", "a-soft"),
    ("good", "b-soft"),
    ("bad", "a-soft"),
    ("bad", "b-soft"),
    ("paper", "ink"),
]
#: Lines and marks with a meaning, and their background.
GRAPHICS_PAIRS = [("field-line", "surface"), ("field-line", "paper"), ("focus", "paper")] + [
    (layer_type, "surface") for layer_type in ("a", "b", "good", "fourth")
]


def colours(theme: str) -> dict[str, str]:
    block = re.search(rf"^{re.escape(theme)} \{{(.*?)^\}}", TOKENS, re.DOTALL | re.MULTILINE)
    assert block is not None
    return dict(re.findall(r"--agon-([\w-]+): (#[0-9a-f]{6});", block.group(1)))


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [":root", ".dark"])
def test_text_can_be_read(theme: str) -> None:
    palette = colours(theme)
    too_weak = {
        pair: round(contrast(palette[pair[0]], palette[pair[1]]), 2)
        for pair in TEXT_PAIRS
        if contrast(palette[pair[0]], palette[pair[1]]) < AA_TEXT
    }
    assert too_weak == {}


@pytest.mark.parametrize("theme", [":root", ".dark"])
def test_lines_can_be_seen(theme: str) -> None:
    palette = colours(theme)
    assert all(contrast(palette[one], palette[other]) >= AA_GRAPHICS for one, other in GRAPHICS_PAIRS)


@pytest.mark.parametrize("theme", [":root", ".dark"])
@pytest.mark.parametrize("side", ["a", "b-edge", "muted"])
def test_numbers_on_the_strongest_cell_of_a_heat_map_can_be_read(theme: str, side: str) -> None:
    palette = colours(theme)
    over, under = palette[side], palette["sunken"]
    mixed = "#" + "".join(
        f"{round(MAX_HEAT * int(over[i : i + 2], 16) + (1 - MAX_HEAT) * int(under[i : i + 2], 16)):02x}"
        for i in (1, 3, 5)
    )
    assert contrast(palette["ink"], mixed) >= AA_TEXT


def test_both_themes_define_the_same_colours() -> None:
    assert set(colours(":root")) == set(colours(".dark"))
