"""Prometheus' own tool on what an operator gives it: configuration and alert rules of docs/monitoring, the alerts that
fire (and do not) for series of alerts_test.yml, and the metrics of running services.

python -m tests.promtool

Takes `promtool` from PATH, or unpacks Debian's package of Prometheus for the time of the run. Exits with 1 if the tool
has a complaint that is not expected.
"""

import asyncio
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.test_monitoring import FOLDER, scrapes

ALERTS_TEST = Path(__file__).with_name("alerts_test.yml")
#: vLLM's names have a colon, which Prometheus reserves for recording rules; its dashboards ask for them.
EXPECTED = "metric names should not contain ':'"


def main() -> int:
    """Run every check; the number of those that failed."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent)
        tool = shutil.which("promtool") or _unpacked(folder / "package")
        rules = folder / "rules"
        shutil.copytree(FOLDER, rules)
        shutil.copy(ALERTS_TEST, rules)
        commands = (
            ("check", "config", "--syntax-only", "prometheus.yml"),
            ("check", "rules", "alerts.yml"),
            ("test", "rules", ALERTS_TEST.name),
        )
        failed = sum(subprocess.run([tool, *command], cwd=rules, check=False).returncode != 0 for command in commands)
        (folder / "store").mkdir()
        for service, text in zip(
            ("controller", "worker", "web UI"), asyncio.run(scrapes(folder / "store")), strict=True
        ):
            found = _complaints(tool, text)
            print(f"Checking the metrics of a {service}: {len(text.splitlines())} lines, {len(found)} complaints")
            print(*(f"  {line}" for line in found), sep="\n", end="\n" if found else "")
            failed += bool(found)
    return failed


def _complaints(tool: str, text: str) -> list[str]:
    """What `promtool check metrics` says about them, beside what is expected."""
    checked = subprocess.run([tool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    lines = (checked.stdout + checked.stderr).splitlines()
    return [line for line in lines if line.strip() and not (line.startswith("vllm:") and EXPECTED in line)]


def _unpacked(folder: Path) -> str:
    """The tool out of Debian's package, which is not installed: that would start a server."""
    folder.mkdir()
    for command in (["apt-get", "download", "-qq", "prometheus"], ["sh", "-c", "dpkg-deb -x *.deb ."]):
        if shutil.which(command[0]) is None or subprocess.run(command, cwd=folder, check=False).returncode != 0:
            sys.exit("needs promtool: install Prometheus (Debian: `apt install prometheus`)")
    return str(folder / "usr" / "bin" / "promtool")


if __name__ == "__main__":
    sys.exit(main() != 0)
