import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webui import plots, texts
from webui.pages import leaderboard, workers
from wire.leaderboard import LeaderboardRow, LeaderboardView
from wire.workers import PageCounts


def row(model: str, rating: float, half: float | None = 40, *, votes: int = 12) -> LeaderboardRow:
    return LeaderboardRow(
        model=model,
        rating=rating,
        lower=None if half is None else rating - half,
        upper=None if half is None else rating + half,
        rank=1,
        votes=votes,
        wins=6,
        losses=6,
        ties=0,
        win_rate=0.5,
        flags=() if half is not None else ("too_few_votes",),
    )


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def test_an_interval_is_a_dot_and_a_line_and_says_so_in_words() -> None:
    scale = plots.rating_scale([row("owl", 1000), row("fox", 900)])
    picture = parse(plots.interval(row("owl", 1000), scale))
    assert len(picture.findall("circle")) == 1
    assert len(picture.findall("line[@class='agon-error']")) == 3
    assert picture.findtext("title") == "owl: 1000, interval 960 to 1040"


def test_no_interval_is_drawn_where_the_votes_support_none() -> None:
    scale = plots.rating_scale([row("owl", 1000, None)])
    picture = parse(plots.interval(row("owl", 1000, None), scale))
    assert not picture.findall("line[@class='agon-error']")
    assert texts.NO_INTERVAL in (picture.findtext("title") or "")


@given(st.integers(-5000, 5000), st.integers(20, 5000))
def test_an_axis_has_a_few_round_numbers_inside_its_scale(low: int, width: int) -> None:
    ticks = plots.Scale(low, low + width).ticks()
    assert 2 <= len(ticks) <= 6
    assert all(low <= tick <= low + width for tick in ticks)


def test_a_heat_map_has_a_cell_for_every_pair_and_a_sentence_for_every_known_one() -> None:
    picture = plots.win_rates(["owl", "fox<b>"], [[None, 0.75], [0.25, None]])
    assert picture.count("<g>") == 2
    assert "owl beats fox&lt;b&gt; in 75% of their battles" in picture
    assert "agon-heat-a" in picture
    assert "agon-heat-b" in picture


def test_counts_are_shown_as_numbers() -> None:
    assert "owl and fox met 3 times" in plots.battle_counts(["owl", "fox"], [[0, 3], [3, 0]])


@given(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(0, 10_000)))
def test_squares_stand_for_all_pages_and_no_state_disappears(counts: tuple[int, int, int]) -> None:
    squares = plots.share_squares(counts, 240)
    assert sum(squares) == min(sum(counts), 240)
    assert all((square > 0) == (count > 0) for square, count in zip(squares, counts, strict=True))


def test_a_page_pool_tells_its_counts_in_words() -> None:
    pool = plots.page_pool(PageCounts(layer_type="full_attention", used=3, evictable=2, empty=95, page_bytes=16384))
    picture = parse(pool)
    assert picture.findtext("title") == "full_attention: 3 pages used, 2 kept for reuse, 95 empty"
    assert len(picture.findall("path")) == 3


def view(*rows: LeaderboardRow) -> LeaderboardView:
    return LeaderboardView(
        board="overall", num_votes=sum(r.votes for r in rows), last_vote_id="1", updated_at=0, rows=rows
    )


def test_a_board_without_votes_invites_to_vote() -> None:
    assert texts.LEADERBOARD_EMPTY_TITLE in leaderboard.render(view())
    assert texts.LEADERBOARD_EMPTY_TITLE in leaderboard.render(view(row("owl", 1000, None, votes=0)))


def test_a_board_can_be_searched_and_filtered_by_votes() -> None:
    rows = (row("grey-owl", 1010), row("red-fox", 990, votes=3))
    assert "red-fox" not in leaderboard.render(view(*rows), "OWL")
    assert "red-fox" not in leaderboard.render(view(*rows), "", 5)
    assert texts.LEADERBOARD_NO_MATCH in leaderboard.render(view(*rows), "wolf")


def test_names_and_flags_are_escaped_and_told_in_words() -> None:
    markup = leaderboard.render(view(row("<script>x</script>", 1000, None)))
    assert "<script>" not in markup
    assert texts.FLAGS["too_few_votes"] in markup


@pytest.mark.parametrize(("number", "told"), [(912, "912"), (9_412_000, "9.41 M"), (7_000_000_000, "7 B")])
def test_large_numbers_are_told_shortly(number: int, told: str) -> None:
    assert workers.short_count(number) == told


def test_no_workers_says_how_to_start_one() -> None:
    assert texts.WORKERS_EMPTY_TITLE in workers.render(())
