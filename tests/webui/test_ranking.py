"""What the leaderboard page shows of a board's view: everything that the view has, and nothing for what it has not."""

import csv
import io
import math
from itertools import pairwise
from typing import Any

import pytest

from tests.webui import fake_views
from webui import texts
from webui.client import BoardQuery
from webui.pages import leaderboard
from webui.ranking import csv_files, history, words
from wire.leaderboard import (
    HistoryView,
    LeaderboardView,
    PositionBias,
    PropensityDiagnostics,
    Statement,
)
from wire.votes import VoteFlag

FULL = fake_views.full_board()


def rendered(view: LeaderboardView, wanted: str = "", **others: Any) -> str:
    return "".join(leaderboard.render(view, wanted, **others))


def test_a_view_of_an_older_controller_shows_no_section_that_it_has_nothing_for() -> None:
    old = LeaderboardView(board="overall", num_votes=FULL.num_votes, last_vote_id="1", updated_at=0, rows=FULL.rows)
    markup = rendered(old)
    absent = (texts.STATEMENTS_TITLE, texts.MORE_TITLE, texts.RATINGS_TITLE, texts.WAITING_MODELS, "Not counted")
    assert not any(part in markup for part in (*absent, "held at 1000", "agon-figure", "<dl", "<ul", "<details"))


def test_a_board_that_leaves_votes_out_says_how_many_and_why() -> None:
    assert words.unrated(FULL.unrated, 16) == "Not counted: 16 votes (answer stopped 9, too quick 5, new voter 3)"
    assert words.unrated({"stopped": 9, "too_quick": 5}, None) == "Not counted: answer stopped 9, too quick 5"
    assert words.unrated({"stopped": 1}, None) == "Not counted: 1 vote (answer stopped 1)"
    markup = rendered(FULL)
    assert words.unrated(FULL.unrated, 16) in markup
    assert words.reason("too_quick") in markup
    assert words.reason("withdrawn") not in markup


def test_every_flag_of_a_vote_is_told_in_words() -> None:
    assert set(texts.UNRATED) == set(VoteFlag.__args__)  # type: ignore[attr-defined]
    assert words.unrated_flag("of_an_import") == "of an import"
    assert words.reason("of_an_import") == "Of an import."
    assert words.not_rated(("stopped",)) == "This vote is recorded but not rated: an answer was stopped before its end."


def said(**changes: Any) -> str:
    given = {"above": "owl", "below": "fox", "is_decided": True, "lower": 12.4, "upper": 80.0, "votes_needed": None}
    markup = words.statement(Statement.model_validate({**given, **changes}))
    assert "<b>owl</b>" in markup
    assert "<b>fox</b>" in markup
    return markup.replace("<b>", "").replace("</b>", "")


def test_statements_are_sentences() -> None:
    assert said() == "owl is above fox (at least 12 points)"
    assert said(lower=None, upper=None) == "owl is above fox"
    assert said(lower=0.2) == "owl is above fox"
    assert said(is_decided=False, votes_needed=118) == "About 120 more votes decide between owl and fox"
    assert said(is_decided=False, votes_needed=23_410) == "About 23,000 more votes decide between owl and fox"
    assert said(is_decided=False, votes_needed=1) == "About 1 more vote decides between owl and fox"
    assert said(is_decided=False, votes_needed=None) == "Not yet decided between owl and fox"


def test_statements_about_the_models_that_were_searched_are_shown_and_many_are_folded() -> None:
    assert rendered(FULL).count('<li class="agon-decided"') == 2
    assert rendered(FULL, "otter").count('class="agon-statements"') == 1
    assert rendered(FULL, "otter").count('<li class="agon-') == 2
    many = FULL.model_copy(update={"statements": FULL.statements * 3})
    assert "7 more" in rendered(many)


def test_a_rank_is_a_range_of_what_the_votes_leave_open() -> None:
    assert '<td role="cell" class="agon-col-rank">2\u20133</td>' in rendered(FULL)


def test_a_model_without_a_rank_stands_below_those_that_have_one() -> None:
    lucky = FULL.rows[-1].model_copy(update={"model": "lucky", "rating": 1400.0, "votes": 1})
    markup = rendered(FULL.model_copy(update={"rows": (lucky, *FULL.rows[:-1]), "statements": ()}))
    table = markup.partition("<tbody")[2].partition("</tbody>")[0]
    assert table.rindex("<tr") < table.index("lucky")
    assert "1<span> vote</span>" in table
    # Its matrices are in the order of the view: it is their last row here.
    rates = markup.partition("How often two models met</title>")[2]
    assert rates.index("1  marsh-heron-9m") < rates.index("6  lucky")


def test_a_model_without_votes_has_a_row_and_neither_a_rating_nor_a_place_in_a_picture() -> None:
    new = FULL.rows[-1].model_copy(
        update={"model": "blue-tit-2m", "rating": 1000.0, "votes": 0, "flags": ("no_votes",)}
    )
    size = range(len(FULL.rows))
    none = {"win_rate": tuple(tuple(None for _ in size) for _ in size), "predicted": ()}
    markup = rendered(FULL.model_copy(update={"rows": (*FULL.rows[:-1], new), **none}))
    row = markup.partition("<tbody")[2].partition("</tbody>")[0].rpartition("<tr")[2]
    assert "blue-tit-2m" in row
    assert "<b>\u2013</b>" in row
    assert "<svg" not in row
    assert row.count("agon-flag") == 1
    assert "6  blue-tit-2m" not in markup
    assert texts.WAITING_MODELS not in markup


def test_cards_tell_who_made_a_model_and_that_it_is_retired() -> None:
    markup = rendered(FULL)
    assert "<span>released 14 Mar 2026</span>" in markup, "no line breaks in a date"
    markup = markup.replace("<span>", "").replace("</span>", "")
    assert "Heron Lab \u00b7 9.41 M parameters \u00b7 Apache-2.0 \u00b7 released 14 Mar 2026" in markup
    assert 'href="https://models.example/heron?a=1&amp;b=2" rel="noopener noreferrer"' in markup
    assert "Vole &amp; Sons" in markup
    assert markup.count("retired 1 Oct 2026") == 2, "the card is that of the older revision, too"
    assert "<b>blue-tit-2m</b> (Tit Works)" in markup
    assert '<i class="agon-revision">@4b1f00c2</i>' in markup


def test_a_model_that_was_registered_before_it_answers_is_listed_on_an_empty_board() -> None:
    empty = FULL.model_copy(update={"rows": (), "num_votes": 0})
    assert "blue-tit-2m" in rendered(empty)


def test_what_else_the_votes_tell() -> None:
    assert words.position_bias(PositionBias(points=6.4, lower=1.9, upper=10.9)) == (
        "Standing on side A instead of B is worth 6 points (95% interval +2 to +11)."
    )
    assert words.position_bias(PositionBias(points=-6.4, lower=-10.9, upper=-1.9)) == (
        "Standing on side B instead of A is worth 6 points (95% interval +2 to +11)."
    )
    assert words.position_bias(PositionBias(points=6.4, lower=-1.9, upper=10.9)) == (
        "No effect of the side is certain: +6 points for A (95% interval -2 to +11)."
    )
    assert words.propensity(PropensityDiagnostics(num_known=90, smallest=0.0125, effective_votes=60.2), 100) == [
        "Of 90 votes the chance of the pair is known, 1.2% at least.",
        "Weighted as if drawn evenly, 100 votes are worth 60.",
    ]
    assert words.ties(400 * math.log10(1.5)) == "Equal models tie in 20% of their battles."
    styled = rendered(fake_views.full_board(style_controlled=True))
    assert "A longer answer: +18 points (95% interval +11 to +25)" in styled


def test_boards_are_offered_in_order_and_by_names_that_people_read() -> None:
    assert words.boards(("x_y", "lang_de", "named", "overall")) == [
        ("All rated votes", "overall"),
        ("Side by side", "named"),
        ("German", "lang_de"),
        ("X y", "x_y"),
    ]


def test_an_older_controller_that_computes_in_the_usual_way_alone_is_not_taken_at_its_word() -> None:
    asked = BoardQuery(fit="rao_kupper")
    assert texts.OTHER_METHOD in rendered(FULL, query=asked)
    assert texts.OTHER_METHOD not in rendered(FULL.model_copy(update={"fit": "rao_kupper"}), query=asked)
    assert texts.OTHER_METHOD not in rendered(FULL)


def test_two_boards_stand_side_by_side_with_what_is_certain_in_bold() -> None:
    markup = rendered(FULL, compared=fake_views.comparison("lang_de", "code"))
    table = markup.partition('<table class="agon-compared">')[2].partition("</table>")[0]
    assert "German (310 votes) and Code (1,250 votes)" in markup
    assert table.count("<tr>") == 1 + 2, "a model that only one board has is not compared"
    assert "<b>+60</b> <small>+14 to +106</small>" in table
    assert "<td>-9 <small>-50 to +32</small></td>" in table
    assert "agon-compared" not in rendered(FULL)
    assert "agon-compared" not in rendered(FULL, "vole", compared=fake_views.comparison("lang_de", "code"))


DAYS = fake_views.full_history()


def test_a_history_has_a_line_for_each_model_and_a_bar_for_each_day_with_votes() -> None:
    picture = history.over_time(DAYS, [row.model for row in FULL.rows])
    assert picture.count("<polyline") == 4
    assert picture.count("<rect") == 38
    assert "river-otter-6m: 1078 on 16 Oct 2026, 1074 on 10 Nov 2026" in picture


def test_a_history_of_one_day_or_of_other_models_is_no_picture() -> None:
    names = [row.model for row in FULL.rows]
    assert history.over_time(HistoryView(board="overall", days=DAYS.days[:1]), names) == ""
    assert history.over_time(HistoryView(board="overall", days=()), names) == ""
    assert history.over_time(DAYS, ["nobody"]) == ""
    assert texts.RATINGS_TITLE not in rendered(FULL, days=HistoryView(board="overall", days=()))


def test_the_numbers_at_the_ends_of_lines_do_not_overlap() -> None:
    close = tuple(
        day.model_copy(update={"rows": tuple(row.model_copy(update={"rating": 1000.0}) for row in day.rows)})
        for day in DAYS.days
    )
    picture = history.over_time(HistoryView(board="overall", days=close), [row.model for row in FULL.rows])
    ends = picture.partition('<div class="agon-ends">')[2].partition("</div>")[0]
    tops = sorted(float(part.partition("%")[0]) for part in ends.split("top:")[1:])
    assert len(tops) == 4
    assert all(low + 8.9 < high for low, high in pairwise(tops))
    assert tops[-1] <= 100


def test_a_large_board_has_heat_maps_of_its_first_models_and_says_so() -> None:
    rows = [FULL.rows[0].model_copy(update={"model": f"model-{number}"}) for number in range(60)]
    counts = tuple(tuple(3 for _ in rows) for _ in rows)
    large = FULL.model_copy(
        update={"rows": tuple(rows), "battle_count": counts, "win_rate": (), "predicted": (), "statements": ()}
    )
    markup = rendered(large)
    assert markup.count("<g><title>") == 2 * 16 * 15
    assert words.part(16, 60).strip() in markup
    assert len(markup) < 400_000


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


@pytest.mark.parametrize("name", csv_files.NAMES)
def test_every_plot_has_its_data_as_a_file_and_its_link_on_the_page(name: str) -> None:
    assert f'id="csv-{name}"' in rendered(FULL, days=DAYS)
    rows = read(csv_files.of_history(DAYS) if name == csv_files.HISTORY else csv_files.of_board(name, FULL))
    assert len({len(row) for row in rows}) == 1
    assert len(rows) > 1


def test_the_files_hold_what_the_plots_show_without_rounding() -> None:
    ratings = read(csv_files.of_board("ratings", FULL))
    first = dict(zip(ratings[0], ratings[1], strict=True))
    assert (first["model"], float(first["rating"]), first["provider"]) == ("marsh-heron-9m", 1142.0, "Heron Lab")
    battles = read(csv_files.of_board("battles", FULL))
    assert [[int(cell) for cell in row[1:]] for row in battles[1:]] == [list(row) for row in FULL.battle_count]
    last = read(csv_files.of_history(DAYS))[-1]
    assert float(last[2]) == DAYS.days[-1].rows[-1].rating


def test_a_link_names_the_settings_of_its_board() -> None:
    plain = csv_files.link("ratings", BoardQuery())
    assert 'href="/leaderboard/data/ratings.csv"' in plain
    changed = csv_files.link("ratings", BoardQuery("code", style_control=True, fit="rao_kupper"))
    assert 'href="/leaderboard/data/ratings.csv?board=code&amp;style_control=true&amp;fit=rao_kupper"' in changed
