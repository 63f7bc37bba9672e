"""An arena of containers by the compose files: started, looked at from inside and outside, stopped."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from tests.browser import find_browser
from tests.containers.podman import ROOT, Podman
from tests.e2e.arena import free_ports

PROJECT = "agon-try"
FILES = ("docker-compose.yml", "docker-compose.secrets.yml")
SERVICES = ("redis", "controller", "worker-finch", "worker-robin", "webui")
_PATIENCE_MS = 60_000
_EXPORT = (
    "AGON_ADMIN_TOKEN=$(cat $AGON_ADMIN_TOKEN_FILE) AGON_CONTROLLER_URL=http://127.0.0.1:8100 "
    "agon votes export -o $HOME/votes.ndjson >/dev/null && wc -l < $HOME/votes.ndjson; rm -f $HOME/votes.ndjson"
)
_CHAT = """
import httpx, sys
headers = {"Authorization": f"Bearer {sys.argv[1]}"} if len(sys.argv) > 1 else {}
body = {"model": "robin", "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 8}
print(httpx.post("http://controller:8100/v1/chat/completions", json=body, headers=headers, timeout=30).status_code)
"""


class ContainerArena:
    """The containers of one project. `address` is the published one of the web UI."""

    def __init__(self, podman: Podman) -> None:
        self._podman = podman
        port = free_ports(0).webui
        self._publish = f"127.0.0.1:{port}"
        self.address = f"http://{self._publish}"
        subprocess.run([sys.executable, str(ROOT / "docker" / "make_secrets.py")], check=True)

    @contextmanager
    def running(self, **variables: str) -> Iterator[None]:
        """All services healthy; afterwards the containers are gone and the volumes stay."""
        given = {"AGON_PUBLISH": self._publish, **variables}
        self._podman.compose(PROJECT, FILES, "up", "-d", "--no-build", **given)
        try:
            for service in SERVICES:
                self._podman.wait_healthy(self.container(service))
            yield
        finally:
            self._podman.compose(PROJECT, FILES, "down", **given)

    def remove_volumes(self) -> None:
        """Forget the votes."""
        names = self._podman.run("volume", "ls", f"--filter=label=com.docker.compose.project={PROJECT}", "--quiet")
        for name in names.split():
            self._podman.run("volume", "rm", name)

    def container(self, service: str) -> str:
        """The name of the container of a service."""
        labels = {"com.docker.compose.project": PROJECT, "com.docker.compose.service": service}
        filters = [f"--filter=label={key}={value}" for key, value in labels.items()]
        return self._podman.run("ps", *filters, "--format={{.Names}}").strip()

    def open_doors(self, service: str) -> list[str]:
        """What is less closed than it should be in a container; empty if nothing is."""
        container, found = self.container(service), []
        _, status = self._podman.execute(container, "sh", "-c", "id -u; cat /proc/self/status; touch /opt/x /x 2>&1")
        user = status.split("\n", 1)[0]
        if user == "0":
            found.append("runs as root")
        if "CapEff:\t0000000000000000" not in status or "CapBnd:\t0000000000000000" not in status:
            found.append("has capabilities")
        if "NoNewPrivs:\t1" not in status:
            found.append("may gain privileges")
        if status.count("Read-only file system") != 2:
            found.append(f"can write outside its volumes: {status[-200:]}")
        inspected = self._podman.inspect(container)
        if any(path.read_text() in str(inspected["Config"]) for path in (ROOT / "docker" / "secrets").iterdir()):
            found.append("shows a secret to `podman inspect`")
        if service != "redis":
            code, _ = self._podman.execute(
                container, "sh", "-c", "python -m pip --version || python -c 'import setuptools'"
            )
            if code == 0:
                found.append("has pip or setuptools")
        return found

    def secret_files(self, service: str) -> str:
        """Mode and name of each secret that a service sees."""
        return self._podman.execute(self.container(service), "sh", "-c", "stat -c '%a %n' /run/secrets/*")[1].strip()

    def num_votes(self) -> int:
        """Votes in the log, by the `agon` command of the controller's image."""
        code, text = self._podman.execute(self.container("controller"), "sh", "-c", _EXPORT)
        assert code == 0, text
        [count] = [line for line in text.splitlines() if line.isdigit()]
        return int(count)

    def chat_status(self, *key: str) -> int:
        """The status of a completion asked from the web UI's container, with or without an API key."""
        return int(self._podman.execute(self.container("webui"), "python", "-c", _CHAT, *key)[1])

    def battle(self) -> list[str]:
        """A battle and a vote in a browser over the published port; the two names that the page then shows."""
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
            page = browser.new_page()
            page.set_default_timeout(_PATIENCE_MS)
            try:
                return self._battle(page)
            finally:
                browser.close()

    def _battle(self, page: Page) -> list[str]:
        page.goto(self.address)
        page.locator("#prompt textarea").fill("What is 12 + 30?")
        page.locator("#send").click()
        expect(page.locator("#heads .agon-finished")).to_have_count(2, timeout=_PATIENCE_MS)
        page.get_by_role("button", name="A is better").click()
        plates = page.locator("#reveal .agon-plate .agon-name")
        expect(plates).to_have_count(2, timeout=_PATIENCE_MS)
        return sorted(plates.all_inner_texts())


def builds_launchers(podman: Podman, image: str) -> str:
    """Compile and load an extension as Triton does for a kernel's launcher, in the GPU image as Docker runs it.

    That is with a read-only root, a /tmp without execution and a volume for the cache. Needs no GPU. Returns where the
    extension was loaded from.
    """
    program = Path(__file__).with_name("launcher.py").read_text()
    options = ["--rm", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--user=10001:10001"]
    options += ["--tmpfs=/tmp:size=512m,mode=1777,noexec", f"--volume={PROJECT}_kernels:/cache"]
    return podman.run("run", *options, image, "python", "-c", program).strip()
