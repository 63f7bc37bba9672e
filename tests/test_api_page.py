"""docs/api.md has every route and is what its generator writes.

That its curl lines work is tested with controller and worker.
"""

import re
from pathlib import Path

from docs import api_page
from tests.api_page import curl_lines

TEXT = (Path(__file__).parents[1] / "docs/api.md").read_text()


def test_page_is_what_the_generator_writes() -> None:
    assert api_page.text() == TEXT, "run `make pages`"


def test_page_has_every_route_with_a_curl_line() -> None:
    for document in api_page.documents():
        server = document["servers"][0]["url"]
        for path, operations in document["paths"].items():
            for method in operations:
                assert f"#### `{method.upper()} {path}`" in TEXT
        assert len(curl_lines(server)) == sum(len(operations) for operations in document["paths"].values())


def test_a_model_of_both_services_is_the_same_in_both() -> None:
    controller, worker = (document["components"]["schemas"] for document in api_page.documents())
    for name in controller.keys() & worker.keys():
        assert controller[name] == worker[name]


def test_links_lead_to_headings() -> None:
    anchors = re.findall(r'<a id="([^"]+)">', TEXT)
    assert len(anchors) == len(set(anchors))
    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= set(anchors)
