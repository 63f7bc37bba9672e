"""The `agon` command: help, exit codes, and what it imports."""

import resource
import subprocess
import sys

import pytest

from cli.main import COMMANDS, help_text, main


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command as users do, in its own process."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "cli.main", *arguments], capture_output=True, text=True, check=False, timeout=120
    )


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from cli.main import main; main(['--help']); "
        "print([name for name in ('typer', 'rich', 'httpx', 'pydantic', 'torch', 'asyncio') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "[]"


def test_help_comes_at_once() -> None:
    """CPU seconds of the command, 0.08 on an idle machine: the least of some runs, because other work evicts caches."""

    def work_s() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run("--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)

    assert min(work_s() for _ in range(4)) < 0.3


def test_help_lists_every_command() -> None:
    assert all(f"  {name} " in help_text() for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself(name: str) -> None:
    answer = run(name, "--help")
    assert answer.returncode == 0, answer.stderr
    assert "usage" in answer.stdout.lower()


@pytest.mark.parametrize(
    "arguments",
    [("votes", "export"), ("votes", "import"), ("bench", "offline"), ("bench", "latency"), ("bench", "serve")],
)
def test_each_subcommand_explains_itself(arguments: tuple[str, ...]) -> None:
    answer = run(*arguments, "--help")
    assert answer.returncode == 0, answer.stderr


def test_an_unknown_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["fly"])
    assert caught.value.code == 2
    assert "no command 'fly'" in capsys.readouterr().err


@pytest.mark.parametrize(("path", "kind"), [("./no/such/folder", "folder"), ("/no/such/model.gguf", "file")])
def test_a_model_that_is_not_there_is_named_before_a_server_starts(path: str, kind: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["serve", f"bird={path}"])
    assert caught.value.code == f"agon serve: there is no {kind} {path}."


def test_an_interrupt_during_the_imports_ends_without_a_traceback() -> None:
    code = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'cli.doctor': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "from cli.main import main; main(['doctor'])"
    )
    answer = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (130, "")


def test_a_missing_package_is_named_with_its_cure() -> None:
    code = "import sys; sys.modules['rich'] = None; from cli.main import main; main(['doctor'])"
    answer = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert "pip install 'agon[all]'" in answer.stderr
    assert "Traceback" not in answer.stderr
