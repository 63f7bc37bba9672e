import json
import logging
import re
import subprocess
import sys
from typing import Any

from service_kit.logs import JsonLines, log_event, short

WRITE = """
import logging
from service_kit.logs import configure_logging, log_event
configure_logging(("ours",), "INFO")
for name in ("ours.part", "library"):
    log_event(logging.getLogger(name), "begun", number=1)
log_event(logging.getLogger("ours"), "looked", logging.DEBUG)
logging.getLogger("library").warning("trouble with %s", "it")
"""


def written(**how: Any) -> dict[str, Any]:
    records: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    logger = logging.Logger("ours.part")
    logger.addHandler(Keep())
    log_event(logger, "begun", **how)
    [record] = records
    line: dict[str, Any] = json.loads(JsonLines().format(record))
    return line


def test_a_line_has_its_time_level_event_module_and_fields() -> None:
    line = written(number=1, name_of="x")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("ts"))
    assert line == {"level": "info", "event": "begun", "logger": "ours.part", "number": 1, "name_of": "x"}


def test_an_exception_is_logged_by_type_and_place_without_its_message() -> None:
    try:
        raise ValueError("what a visitor wrote")
    except ValueError as error:
        line = written(level=logging.ERROR, exc_info=error)
    assert line["error"] == "ValueError"
    assert [frame.split(":")[0] for frame in line["at"]] == ["test_logs.py"]
    assert "visitor" not in json.dumps(line)


def test_a_service_writes_its_own_events_and_the_warnings_of_libraries_to_stderr() -> None:
    done = subprocess.run([sys.executable, "-c", WRITE], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["logger"], line["event"]) for line in lines] == [
        ("ours.part", "begun"),
        ("library", "trouble with it"),
    ]


def test_a_short_id_is_too_short_to_be_used() -> None:
    assert short("0123456789abcdef") == "01234567"
