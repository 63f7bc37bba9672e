"""URLs that a worker may and may not register."""

import pytest

from controller.config import Settings
from controller.workers.worker_hosts import WorkerHosts
from wire.errors import ApiError

DEFAULT = WorkerHosts(Settings().worker_hosts)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8200",
        "http://127.9.9.9:8200/",
        "https://localhost:8443",
        "http://[::1]:8200",
        "http://worker:8200",
        "http://worker-finch:8200",
        "http://gpu-worker:8200",
    ],
)
def test_workers_of_this_machine_and_of_a_compose_network_are_allowed(url: str) -> None:
    assert DEFAULT.checked(url) == url.rstrip("/")


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://169.254.169.254",
        "http://10.0.0.1:8200",
        "http://192.168.1.1",
        "http://0.0.0.0:8200",
        "http://[::]:8200",
        "http://[::ffff:10.0.0.1]:80",
        "http://[::ffff:169.254.169.254]",
        "http://2130706433:8200",
        "http://0x7f000001:8200",
        "http://0177.0.0.1:8200",
        "http://example.com",
        "http://worker-1.example.com:8200",
        "http://worker.example.com",
        "http://localhost.example.com",
        "http://127.0.0.1.example.com",
        "http://user@127.0.0.1:8200",
        "http://127.0.0.1:8200@example.com",
        "http://127.0.0.1:8200/path",
        "http://127.0.0.1:8200?x=1",
        "http://127.0.0.1:8200#x",
        "http://127.0.0.1\\@example.com",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:0",
        "http://127.0.0.1:abc",
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379",
        "redis://127.0.0.1:6379",
        "//127.0.0.1",
        "127.0.0.1:8200",
        "http://",
        "",
        "http://127.0.0.1:8200\r\nX: y",
        "http://w\u00f6rker:8200",
        "http://" + "a" * 600,
    ],
)
def test_every_other_address_is_refused(url: str) -> None:
    with pytest.raises(ApiError) as refusal:
        DEFAULT.checked(url)

    assert refusal.value.status in (400, 403)


def test_the_operator_may_allow_a_network() -> None:
    assert WorkerHosts(["10.0.0.0/8"]).checked("http://10.1.2.3:8200") == "http://10.1.2.3:8200"
