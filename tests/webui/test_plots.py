"""Pictures as SVG: intervals, heat maps and page pools."""

import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webui import number_formats, plots, sentences, texts
from webui.pages import leaderboard, workers
from webui.ranking import words
from webui.ranking.predicted import predicted_rates
from wire.leaderboard import LeaderboardRow, LeaderboardView
from wire.model_cards import BoardCard
from wire.workers import Load, PageCounts, PoolPicture, WorkerView


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


def test_ratings_predict_every_pair_that_has_votes() -> None:
    rows = [row("owl", 1400), row("fox", 1000), row("eel", 1000, None, votes=0)]
    rates = predicted_rates(view(*rows))
    picture = plots.predicted_rates([one.model for one in rows], rates)
    assert sentences.predicted_sentence("owl", "fox", 10 / 11) in picture
    assert sentences.predicted_sentence("fox", "owl", 1 / 11) in picture
    assert "eel would" not in picture


def test_a_rate_that_the_controller_predicts_stands_before_that_of_the_ratings() -> None:
    board = view(row("owl", 1400), row("fox", 1000)).model_copy(update={"predicted": ((None, 0.8), (None, None))})
    assert predicted_rates(board) == [[None, 0.8], [1 / 11, None]]


def test_counts_are_shown_as_numbers() -> None:
    assert "owl and fox met 3 times" in plots.battle_counts(["owl", "fox"], [[0, 3], [3, 0]])


PERCENTS = st.integers(0, 100)
CELLS = st.lists(st.tuples(st.sampled_from([None, 0, 1, 2]), PERCENTS, PERCENTS), max_size=300)


@given(CELLS)
def test_a_pool_is_a_square_for_each_cell_and_nothing_outside(cells: list[tuple[int | None, int, int]]) -> None:
    picture = PoolPicture(layer_types=("full", "window/0", "window/1"), cells=tuple(cells))
    root = parse(plots.page_pool(picture, {"full": 0, "window": 1}))
    (ground,) = root.findall("path")
    assert ground.get("d", "").count("M") == len(cells)
    rows = -(-len(cells) // 32)
    drawn = "".join(path.get("d", "") for path in root.iter("path"))
    for x, y, height in re.findall(r"M([0-9.]+) ([0-9.]+)h[.]84v([0-9.]+)", drawn):
        assert 0 <= float(x) <= 32 - 0.84
        assert float(y) >= 0
        assert float(y) + float(height) <= max(1, rows)


def test_a_pool_shows_what_is_used_below_what_is_kept_in_the_colour_of_its_layers() -> None:
    picture = PoolPicture(layer_types=("full", "window/0", "window/1"), cells=((0, 50, 25), (None, 0, 0), (2, 0, 100)))
    root = parse(plots.page_pool(picture, {"full": 0, "window": 5}))
    groups = {group.get("class"): group for group in root.findall("g")}
    assert set(groups) == {"agon-pool-type-0", "agon-pool-type-1"}, "five is the second of the second round"
    used, kept = groups["agon-pool-type-0"].findall("path")
    assert (used.get("class"), used.get("d")) == ("agon-page-used", "M0.08 0.50h.84v0.42h-.84z")
    assert (kept.get("class"), kept.get("d")) == ("agon-page-evictable", "M0.08 0.29h.84v0.21h-.84z")


def test_a_pool_tells_in_words_what_it_shows() -> None:
    picture = PoolPicture(
        layer_types=("full", "window/0", "window/1"), cells=((0, 50, 50), (None, 0, 0), (1, 0, 100), (2, 30, 0))
    )
    assert parse(plots.page_pool(picture, {"full": 0, "window": 1})).findtext("title") == (
        "Page pool in the order of its addresses, 4 cells: 20% used, 38% kept for reuse, the rest empty; "
        "full in 1; window in 2"
    )


def worker(**changes: Any) -> WorkerView:
    card = {"name": "owl", "revision": "1", "architecture": "a", "num_parameters": 1, "dtype": "x", "context_length": 9}
    view = {
        "worker_id": "w-1",
        "model": "owl",
        "state": "ready",
        "in_flight": 0,
        "card": card,
        "capacity": {"max_running": 4, "max_queued": 4, "kv_tokens": 99},
        "load": Load(pages=tuple(changes.pop("pages", ()))),
        "last_heartbeat_age_s": 0.1,
    }
    return WorkerView.model_validate({**view, **changes})


def counts(name: str, used: int = 1) -> PageCounts:
    return PageCounts(layer_type=name, used=used, evictable=2, empty=7, page_bytes=16384)


def test_names_of_layers_that_a_worker_made_up_stay_text() -> None:
    evil = "<img src=x onerror=alert(1)>"
    picture = PoolPicture(layer_types=(evil,), cells=((0, 50, 0),))
    markup = workers.render([worker(pages=[counts(evil)])], {"w-1": picture})
    assert "<img" not in markup
    assert "&lt;img" in markup


def test_a_worker_with_a_picture_has_a_legend_in_its_colours() -> None:
    names = ("main.full", "main.window/0", "main.window/1")
    picture = PoolPicture(layer_types=names[:2], cells=((0, 50, 0), (1, 10, 10)))
    markup = workers.render([worker(pages=map(counts, names))], {"w-1": picture})
    [root] = ElementTree.fromstring(f"<div>{markup}</div>".replace("&middot;", "-")).findall("div")
    keys = [(item.find("span").get("class"), item.findtext("b")) for item in root.iter("li")]  # type: ignore[union-attr]
    assert keys == [
        ("agon-key agon-pool-type-0", texts.LAYER_KINDS["full"]),
        ("agon-key agon-pool-type-1", texts.LAYER_KINDS["window"]),
    ]
    assert len(list(root.iter("svg"))) == 1


def test_a_worker_whose_load_is_not_shown_has_its_model_and_nothing_that_moves() -> None:
    markup = workers.render([worker(pages=[counts("echo")]).without_figures()], {})
    assert "owl" in markup
    assert not any(mark in markup for mark in ("<dl>", "agon-pool-box", "agon-legend", texts.NO_PAGES))


def test_a_worker_without_a_picture_has_its_counts_and_no_colours() -> None:
    markup = workers.render([worker(pages=[counts("echo")])], {"w-other": PoolPicture(layer_types=(), cells=())})
    assert "<svg" not in markup
    assert "agon-pool-type" not in markup
    assert "10% used" in markup


def test_requests_whose_pages_are_in_main_memory_are_told() -> None:
    swapping = worker(load=Load(waiting=3, swapped=2, mirror_bytes_used=1, mirror_bytes_total=9))
    assert sentences.fact("swapped", "2") in workers.render([swapping], {})
    assert sentences.fact("swapped", "0") not in workers.render([worker()], {})


def test_a_hosted_worker_says_that_it_has_no_pool() -> None:
    assert texts.NO_PAGES in workers.render([worker()], {})


def view(*rows: LeaderboardRow) -> LeaderboardView:
    return LeaderboardView(
        board="overall", num_votes=sum(r.votes for r in rows), last_vote_id="1", updated_at=0, rows=rows
    )


def rendered(*given: Any, **named: Any) -> str:
    return "".join(leaderboard.render(*given, **named))


def test_a_board_without_votes_invites_to_vote() -> None:
    assert texts.LEADERBOARD_EMPTY_TITLE in rendered(view())
    assert texts.LEADERBOARD_EMPTY_TITLE in rendered(view(row("owl", 1000, None, votes=0)))


def test_a_board_can_be_searched_and_filtered_by_votes() -> None:
    rows = (row("grey-owl", 1010), row("red-fox", 990, votes=3))
    assert "red-fox" not in rendered(view(*rows), "OWL")
    assert "red-fox" not in rendered(view(*rows), "", 5)
    assert texts.LEADERBOARD_NO_MATCH in rendered(view(*rows), "wolf")


def test_the_board_tells_what_is_known_of_a_model_that_is_served() -> None:
    card = worker().card
    markup = rendered(view(row("owl", 1000), row("fox", 1000)), served={"owl": card})
    facts = " \u00b7 ".join(f"<span>{fact}</span>" for fact in words.card_facts(None, card))
    assert markup.count(facts) == 1
    hosted = card.model_copy(update={"num_parameters": 0, "runs_on": "remote"})
    assert words.card_facts(None, hosted) == ("9 tokens of context", texts.RUNS_ON["remote"])
    assert words.card_facts(None, card.model_copy(update={"chat": "none"}))[-1] == "completes text, does not chat"


def test_the_card_of_a_model_goes_before_what_its_worker_says_and_an_odd_date_stays() -> None:
    card = BoardCard(model="owl", released="2026-13-45", runs_on="Lyon", joules_per_token=0.42)
    facts = words.card_facts(card, worker().card)
    assert facts[-3:] == ("released 2026-13-45", "Lyon", "0.42 J a token")
    assert "12 J a token" in words.card_facts(card.model_copy(update={"joules_per_token": 12.34}), None)


def test_a_model_without_an_interval_has_no_rank() -> None:
    place = '<td role="cell" class="agon-col-rank">1</td>'
    assert place in rendered(view(row("owl", 1000)))
    unsure = rendered(view(row("owl", 1000, None)))
    assert place not in unsure
    assert texts.NO_RANK in unsure


def test_names_and_flags_are_escaped_and_told_in_words() -> None:
    markup = rendered(view(row("<script>x</script>", 1000, None)))
    assert "<script>" not in markup
    assert texts.FLAGS["too_few_votes"] in markup


@pytest.mark.parametrize(("number", "told"), [(912, "912"), (9_412_000, "9.41 M"), (7_000_000_000, "7 B")])
def test_large_numbers_are_told_shortly(number: int, told: str) -> None:
    assert number_formats.short_count(number) == told


def test_no_workers_says_how_to_start_one() -> None:
    assert texts.WORKERS_EMPTY_TITLE in workers.render((), {})


def test_the_board_says_for_a_week_that_votes_were_restored() -> None:
    board = view(row("owl", 1000, 10, votes=9)).model_copy(update={"updated_at": 1e6, "num_restored": 41})
    assert "journal" not in rendered(board)
    assert "41 votes" in rendered(board.model_copy(update={"restored_at": 1e6 - 60}))
    assert "journal" not in rendered(board.model_copy(update={"restored_at": 1e6 - 8 * 86_400}))
