"""`python -m tests.two_hosts.document`: docs/machines.md on four hosts, each command as it stands there. Needs root.

Models are the demo models, and for the divided one a tiny checkpoint, under the paths of the page. `agon` is this
source tree; `scp` copies between the folders of the hosts, because they share a file system.
"""

import json
import re
import sys
import tempfile
from pathlib import Path

from tests.two_hosts.hosts import ROOT, Host, Running, hosts

PAGE = ROOT / "docs" / "machines.md"
URL = "https://10.231.0.1:8100"
AGON = f"{sys.executable} -P -m cli.main"
PROMPT = [5, 9, 2, 33, 17, 4, 8, 21, 6]
#: This visitor is quicker than people, and needs no long answers.
ENVIRONMENT = {"AGON_MIN_READ_S": "0", "AGON_PACED": "0", "AGON_BATTLE_MAX_TOKENS": "24"}


def main() -> None:
    """Follow the page; raises AssertionError where it does not lead to what it says."""
    certificates, variables, arena, copy, join, divided = blocks()
    with tempfile.TemporaryDirectory(prefix="agon-page-") as folder, hosts(4, Path(folder)) as machines:
        models = make_models(Path(folder))
        first, second, third, _ = machines
        shell(first, certificates, models)
        for number, machine in enumerate(machines, start=1):
            for name in ("ca.pem", f"machine{number}.pem", f"machine{number}.key"):
                if machine is not first:
                    (machine.folder / name).write_bytes((first.folder / name).read_bytes())
        setup = {machine.namespace: of_machine(variables, number) for number, machine in enumerate(machines, start=1)}
        up = start(first, "up", setup[first.namespace] + arena, models)
        up.wait_for("The arena is ready: https://10.231.0.1:7860")
        say("machine 1: the arena is ready")
        joins = []
        for number, machine in enumerate(machines[1:], start=2):
            shell(first, of_machine(copy, number), models)
            joined = start(machine, "join", setup[machine.namespace] + join, models)
            joined.wait_for("second: served in the arena of")
            joins.append(joined)
            say(f"machine {number}: {joined.output.splitlines()[0]}")
        battles(first)
        listed = shell(first, setup[first.namespace] + "\nagon models list", models)
        assert all(f"https://10.231.0.{number}:8200" in listed for number in (2, 3, 4)), listed
        say("agon models list names every machine")
        doctor(second, setup[second.namespace], models)
        on_third, on_second = divided.split("# machine 2\n")
        joins[0].stop()
        rank_1 = start(third, "rank1", setup[third.namespace] + on_third, models)
        rank_0 = start(second, "rank0", setup[second.namespace] + on_second, models)
        rank_0.wait_for("large: served in the arena of")
        check_tokens(first, models)
        rank_0.stop()
        rank_1.stop()
    say("the page holds")


def blocks() -> list[str]:
    """The commands of the page, in order."""
    return re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)


def of_machine(commands: str, number: int) -> str:
    """The commands of machine 1, or about machine 2, for another one."""
    return commands.replace("machine1.", f"machine{number}.").replace("10.231.0.2:\n", f"10.231.0.{number}:\n")


def make_models(folder: Path) -> Path:
    """The folder that stands for /models."""
    from tests.engine.checkpoints import save

    models = folder / "models"
    models.mkdir()
    (models / "first").symlink_to(ROOT / "demo_models" / "finch")
    (models / "second").symlink_to(ROOT / "demo_models" / "robin")
    save("llama", models / "large")
    return models


def script(host: Host, commands: str, models: Path) -> str:
    """A shell script of the commands. The last one takes the shell's place, so that Ctrl-C reaches it."""
    prefix = host.folder.name.rpartition("-")[0]
    text = commands.replace("/models/", f"{models}/")
    text = re.sub(r"^scp (\S+) 10\.231\.0\.(\d+):$", rf"cp \1 ../{prefix}-\2/", text, flags=re.MULTILINE)
    return f'set -e\nagon() {{ {AGON} "$@"; }}\n{text}'


def shell(host: Host, commands: str, models: Path) -> str:
    """Run commands to their end; returns their output."""
    return host.run_shell(script(host, commands, models))


def start(host: Host, name: str, commands: str, models: Path) -> Running:
    """Run commands of which the last goes on."""
    *before, last = script(host, commands, models).rstrip().splitlines()
    last = re.sub(r"^agon", f"exec {AGON}", last)
    return host.start_shell(name, "\n".join([*before, last]), ENVIRONMENT)


def battles(host: Host) -> None:
    """Battles until a pair had the model of the other machines."""
    for _ in range(20):
        fought = json.loads(host.run("tests.two_hosts.visitor", URL, "battle", environment={"AGON_CA_FILE": "ca.pem"}))
        if "second" in fought["models"].values():
            say(f"a battle over two machines: {fought['models']}")
            return
    raise AssertionError("twenty battles without the model `second`")


def doctor(host: Host, setup: str, models: Path) -> None:
    """The role of a worker, on a machine that runs one."""
    told = shell(host, setup + f"\nexport AGON_CONTROLLER_URLS={URL}\nagon doctor --role worker || true", models)
    assert "10.231.0.2, " in told.replace("IP Address:", ""), told
    assert f"{URL} answers" in told, told
    say("agon doctor --role worker finds certificate and controller")


def check_tokens(host: Host, models: Path) -> None:
    """The divided model answers as transformers do."""
    from tests.engine.checkpoints import TinyModel

    command = ("tests.two_hosts.visitor", URL, "complete", "large", json.dumps(PROMPT))
    found = json.loads(host.run(*command, environment={"AGON_CA_FILE": "ca.pem"}))
    assert found == TinyModel(models / "large").greedy(PROMPT, 16), found
    say("a model over machines 2 and 3 gives the tokens of transformers")


def say(text: str) -> None:
    """Print one line."""
    print(f"[machines.md] {text}", flush=True)


if __name__ == "__main__":
    main()
