"""docs/api.md has every route and is what its generator writes.

That its curl lines work is tested with controller and worker.
"""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.api_page import curl_lines

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("api_page", ROOT / "docs/api_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_is_what_the_generator_writes(generator: ModuleType) -> None:
    assert (ROOT / "docs/api.md").read_text() == generator.text(), "run `make api-page`"


def test_page_has_every_route_with_a_curl_line(generator: ModuleType) -> None:
    text = (ROOT / "docs/api.md").read_text()
    for document in generator.documents():
        server = document["servers"][0]["url"]
        for path, operations in document["paths"].items():
            for method in operations:
                assert f"#### `{method.upper()} {path}`" in text
        assert len(curl_lines(server)) == sum(len(operations) for operations in document["paths"].values())


def test_a_model_of_both_services_is_the_same_in_both(generator: ModuleType) -> None:
    controller, worker = (document["components"]["schemas"] for document in generator.documents())
    for name in controller.keys() & worker.keys():
        assert controller[name] == worker[name]


def test_links_lead_to_headings() -> None:
    text = (ROOT / "docs/api.md").read_text()
    anchors = re.findall(r'<a id="([^"]+)">', text)
    assert len(anchors) == len(set(anchors))
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= set(anchors)
