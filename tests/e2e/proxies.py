"""nginx and Caddy with the files of docs/deploy, and the names and addresses of a test."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.e2e.processes import CONTROLLERS, WEBUIS

ROOT = Path(__file__).parents[2]
CERTIFICATE = ROOT / "tests/certificates/server.pem"
KEY = ROOT / "tests/certificates/server.key"
CA = ROOT / "tests/certificates/ca.pem"
NGINX_FILE = ROOT / "docs/deploy/nginx/agon.conf"
CADDY_FILE = ROOT / "docs/deploy/caddy/Caddyfile"
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"


def find_program(name: str) -> str:
    """The path of nginx or caddy. Fails the test if it is not there: the examples are a promise. Not every distribution
    has Caddy; without it the test is skipped, but not in continuous integration."""
    found = shutil.which(name, path=_PATH)
    if found is None and name == "caddy" and not os.environ.get("CI"):
        pytest.skip("no caddy on this machine")
    assert found is not None, f"no {name} on this machine: apt-get install {name}"
    return found


def nginx_command(folder: Path, port: int, ports: Mapping[str, int]) -> list[str]:
    """nginx in the foreground over the services at `ports`, with TLS at `port` of 127.0.0.1. Its files are in
    `folder`."""
    agon = _replaced(
        NGINX_FILE.read_text(),
        {
            **_addresses(ports),
            "listen 443 ssl http2;": f"listen 127.0.0.1:{port} ssl http2;",
            "server_name lab.example;": "server_name localhost;",
            "/etc/ssl/lab.example.pem": str(CERTIFICATE),
            "/etc/ssl/lab.example.key": str(KEY),
        },
    )
    (folder / "agon.conf").write_text(agon)
    # The worker processes of a root's nginx would have no right to read the folder of a test.
    user = "user root;" if os.geteuid() == 0 else ""
    temporary = " ".join(f"{name}_temp_path {folder};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(
        f"{user} worker_processes 2; daemon off; pid {folder}/nginx.pid; error_log stderr warn;\n"
        f"events {{}}\nhttp {{ {temporary} access_log {folder}/nginx-access.log; include {folder}/agon.conf; }}\n"
    )
    return [find_program("nginx"), "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]


def caddy_command(folder: Path, port: int, ports: Mapping[str, int]) -> list[str]:
    """The same of Caddy."""
    agon = _replaced(
        CADDY_FILE.read_text(),
        {**_addresses(ports), "lab.example {\n": f"https://127.0.0.1:{port} {{\n\ttls {CERTIFICATE} {KEY}\n"},
    )
    (folder / "Caddyfile").write_text(
        f"{{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n}}\n{agon}"
    )
    return [find_program("caddy"), "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


def _addresses(ports: Mapping[str, int]) -> dict[str, str]:
    pairs = [("10.0.0.11:7860", WEBUIS[0]), ("10.0.0.12:7860", WEBUIS[1])]
    pairs += [("10.0.0.11:8100", CONTROLLERS[0]), ("10.0.0.12:8100", CONTROLLERS[1])]
    return {address: f"127.0.0.1:{ports[role]}" for address, role in pairs}


def _replaced(text: str, changes: Mapping[str, str]) -> str:
    for old, new in changes.items():
        assert text.count(old) == 1, f"{old!r} is not there once"
        text = text.replace(old, new)
    return text
