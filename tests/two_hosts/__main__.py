"""`python -m tests.two_hosts` (`make two-hosts`, as root): an arena on one host, models on another.

Two network namespaces stand for the hosts. All services speak TLS by a private authority. It shows what `agon join`
refuses and with which sentence, a battle over both hosts, a worker that is started again, a loopback worker that would
be taken for another, and a model whose two ranks run on the two hosts, with the tokens of transformers.
"""

import json
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.two_hosts.hosts import NETWORK, ROOT, Host, Running, hosts

CERTIFICATES = ROOT / "tests" / "certificates"
TLS = {
    "AGON_TLS_CERT_FILE": str(CERTIFICATES / "server.pem"),
    "AGON_TLS_KEY_FILE": str(CERTIFICATES / "server.key"),
    "AGON_CA_FILE": str(CERTIFICATES / "ca.pem"),
}
ARENA = {**TLS, "AGON_WORKER_HOSTS": f"127.0.0.0/8,{NETWORK}.0/24", "AGON_MIN_READ_S": "0", "AGON_PACED": "0"}
URL = f"https://{NETWORK}.1:8100"
ECHO = ("--engine", "echo", "--echo-tokens-per-s", "200")
PROMPT = [5, 9, 2, 33, 17, 4, 8, 21, 6]
#: `agon` as of another version.
OLD = """\
import importlib.metadata as metadata
real = metadata.version
metadata.version = lambda name: "0.1.9" if name == "agon" else real(name)
from cli.main import main
main()
"""


def main() -> None:
    """Show everything; raises AssertionError at the first thing that does not hold."""
    with tempfile.TemporaryDirectory(prefix="agon-hosts-") as folder, hosts(2, Path(folder)) as (head, other):
        arena = start_arena(head)
        token = head.folder / ".agon" / "worker.token"
        assert token.stat().st_mode & 0o777 == 0o600
        refuse(other, token)
        joined = join_and_fight(head, other, token)
        restart(head, other, joined)
        joined.stop()
        divide(head, other, token, Path(folder))
        assert arena.process.poll() is None
    say("everything holds")


def start_arena(head: Host) -> Running:
    """`agon up` with TLS on the first host, with one model."""
    flags = (
        "--host",
        head.address,
        "--no-demos",
        "--model",
        "one=somebody/one",
        "--engine",
        "echo",
        "--replicas",
        "one=2",
    )
    arena = head.start("up", "cli.main", "up", *flags, environment=ARENA)
    arena.wait_for(f"The arena is ready: https://{head.address}:7860")
    listed = head.run("cli.main", "models", "list", environment=ARENA)
    rows = [line.split()[1] for line in listed.splitlines() if " one " in line]
    assert rows == ["one", "one"], listed
    assert all(f"http://127.0.0.1:{port}: " in listed for port in (8200, 8201)), listed
    say(f"the arena answers at {URL}, with two replicas of its model")
    added = head.run("cli.main", "models", "add", "three=somebody/three", "--replicas", "2", environment=ARENA)
    assert "three is served by http://127.0.0.1:" in added, added
    head.run("cli.main", "models", "remove", "three", environment=ARENA)
    say("a model was added in two processes of its own, and removed")
    return arena


def refuse(other: Host, token: Path) -> None:
    """What the second host may do wrong, and the sentence that it reads."""
    wrong = other.folder / "wrong.token"
    wrong.write_text("not-the-token-of-this-arena")
    (other.folder / "old.py").write_text(OLD)
    model = ("--model", "two=somebody/two", *ECHO)
    right = ("--token-file", str(token), *model)
    no_authority = {name: value for name, value in TLS.items() if name != "AGON_CA_FILE"}
    cases: tuple[tuple[str, tuple[str, ...], dict[str, str], str], ...] = (
        ("wrong token", (URL, "--token-file", str(wrong), *model), TLS, "does not know this worker token"),
        ("no authority", (URL, *right), no_authority, "of an authority that is not trusted here"),
        ("plain HTTP", (URL.replace("https", "http"), *right), TLS, "so that its URL begins with https://?"),
        ("another port", (URL.replace("8100", "8199"), *right), TLS, "cannot be reached: does it run there"),
        ("loopback", (URL, *right, "--host", "127.0.0.1"), TLS, "cannot reach this worker at https://127.0.0.1:8200"),
        ("not its address", (URL, *right, "--host", f"{NETWORK}.7"), TLS, f"cannot listen on {NETWORK}.7:8200"),
        (
            "not allowed",
            (URL, *right, "--worker-url", "https://192.0.2.7:8200"),
            TLS,
            "Workers on '192.0.2.7' are not allowed: add it, or its network, to AGON_WORKER_HOSTS",
        ),
        (
            "no way back",
            (URL, *right, "--worker-url", f"https://{NETWORK}.7:8200"),
            TLS,
            f"the controller cannot reach https://{NETWORK}.7:8200",
        ),
        ("no model", (URL, "--token-file", str(token)), TLS, "Give --model NAME=PATH"),
    )
    for name, arguments, environment, sentence in cases:
        said = other.run("cli.main", "join", *arguments, code=1, environment=environment)
        assert sentence in said, (name, said)
        say(f"{name}: {said.strip().splitlines()[-1]}")
    paths = f"{ROOT}:{other.folder}"
    said = other.run("old", "join", URL, *right, code=1, environment={**TLS, "PYTHONPATH": paths})
    assert "this machine has Agon 0.1.9 and the controller" in said, said
    say(f"old version: {said.strip().splitlines()[-1]}")
    said = other.run("cli.main", "join", URL, *right, "--check", environment=TLS)
    assert f"reaches it at https://{other.address}:8200" in said, said
    said = other.run(
        "model_worker", *model, "--controller", URL, code=2, environment={**TLS, "AGON_WORKER_TOKEN": "t" * 20}
    )
    assert "give --host (AGON_HOST) an address of this machine" in said, said


def join_and_fight(head: Host, other: Host, token: Path) -> Running:
    """The second host joins; a battle has one model of each."""
    model = ("--model", "two=somebody/two", *ECHO)
    joined = other.start("join", "cli.main", "join", URL, "--token-file", str(token), *model, environment=TLS)
    joined.wait_for("two: served in the arena of")
    fought = json.loads(head.run("tests.two_hosts.visitor", URL, "battle", environment=TLS))
    assert all(fought["texts"].values()), fought
    assert sorted(fought["models"].values()) == ["one", "two"], fought
    say(f"a battle over both hosts: {fought['models']}")
    return joined


def restart(head: Host, other: Host, joined: Running) -> None:
    """A worker that is killed is started again by `agon join`."""
    before = len(joined.output)
    [worker] = other.pids_of("model_worker")
    os.kill(worker, signal.SIGKILL)
    joined.wait_for("two: served in the arena of", after=before)
    fought = json.loads(head.run("tests.two_hosts.visitor", URL, "battle", environment=TLS))
    assert sorted(fought["models"].values()) == ["one", "two"], fought
    say("a killed worker is back")


def divide(head: Host, other: Host, token: Path, folder: Path) -> None:
    """A model in two processes on the two hosts; rank 0 joins the arena."""
    from tests.engine.checkpoints import save

    tiny = save("llama", folder / "tiny")
    shared = ("--model", f"tiny={tiny.folder}", "--tensor-parallel", "2", "--master", f"{other.address}:29500")
    engine = ("--threads", "1", "--kv-cache-bytes", "1000000")
    joining = ("cli.main", "join", URL, "--token-file", str(token), *shared, *engine)
    own_folder = ("--data-dir", "rank1")  # this host has the folder of the arena, too
    follower = head.start("rank1", *joining, *own_folder, "--rank", "1", environment=TLS)
    leader = other.start("rank0", *joining, "--rank", "0", environment=TLS)
    leader.wait_for("tiny: served in the arena of")
    follower.wait_for("tiny: rank 1 of 2")
    command = ("tests.two_hosts.visitor", URL, "complete", "tiny", json.dumps(PROMPT))

    def answer() -> Any:
        return json.loads(head.run(*command, environment=TLS))

    assert answer() == tiny.greedy(PROMPT, 16)
    say("a model over both hosts gives the tokens of transformers")
    for host, running, name in ((head, follower, "rank 1"), (other, leader, "rank 0")):
        before = len(running.output)
        killed = [rank_of(head), rank_of(other)]
        os.kill(rank_of(host), signal.SIGKILL)
        started, num_failed = time.monotonic(), 0
        running.wait_for("starts again in", after=before)
        while True:
            try:
                found = answer()
                break
            except AssertionError:  # rank 0 notices the loss of another at its next step
                num_failed += 1
                assert time.monotonic() - started < 120, leader.output
        assert found == tiny.greedy(PROMPT, 16)
        assert not set(killed) & {rank_of(head), rank_of(other)}, "a rank was not started again"
        took_s = time.monotonic() - started
        say(f"{name} killed: both ranks are new and answer the same after {took_s:.1f} s; {num_failed} requests failed")
    leader.stop()
    follower.stop()


def rank_of(host: Host) -> int:
    """The process of the divided model on a host."""
    [rank] = [pid for pid in host.pids_of("model_worker") if "--rank" in Path(f"/proc/{pid}/cmdline").read_text()]
    return rank


def say(text: str) -> None:
    """Print one line."""
    print(f"[two hosts] {text}", flush=True)


if __name__ == "__main__":
    main()
