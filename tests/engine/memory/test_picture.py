from xml.etree import ElementTree

from engine.memory.ledger import PoolCell
from engine.memory.picture import draw_pool


def test_a_pool_is_drawn_as_well_formed_svg_with_a_legend_of_its_types():
    cells = [PoolCell("main.full", 0.5, 0.25), PoolCell(None, 0.0, 0.0), PoolCell("<draft>.window/3", 0.0, 1.0)]
    root = ElementTree.fromstring(draw_pool(cells, cells_per_row=2))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["<draft>.window", "main.full"]
    rectangles = list(root.iter("{http://www.w3.org/2000/svg}rect"))
    assert len(rectangles) == 3 + 3 + 2


def test_an_empty_pool_can_be_drawn():
    ElementTree.fromstring(draw_pool([]))
