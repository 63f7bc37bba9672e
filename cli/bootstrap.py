"""Makes and refreshes the virtual environment: `python3 -I cli/bootstrap.py [--extra all|dev] [--chromium] ...`.

The system's Python runs it before anything is installed, so it uses the standard library only, and a syntax that old
Pythons accept, so that they can report what is missing. It ends at once if pyproject.toml has not changed.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = Path(os.environ.get("AGON_VENV") or ROOT / ".venv").absolute()
STAMP = VENV / ".agon-install.json"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
VERSIONS = ((3, 13), (3, 12), (3, 11))  # newest first, as pyproject.toml allows them
#: What pip may be configured with and uv reads from its environment, and what does not change what is installed. Where
#: pip is configured with anything else, pip installs.
UV_VARIABLES = {
    "cert": "SSL_CERT_FILE",
    "constraint": "UV_CONSTRAINT",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "trusted-host": "UV_INSECURE_HOST",
}
NOT_FOR_UV = {
    "cache-dir",
    "disable-pip-version-check",
    "no-cache-dir",
    "no-color",
    "no-compile",
    "no-input",
    "prefer-binary",
    "progress-bar",
    "quiet",
    "retries",
    "root-user-action",
}
COMPILER_NAMES = ("g++", "clang++", "c++")
PROXY_NAMES = {"nginx": ("nginx", "/usr/sbin/nginx"), "caddy": ("caddy", "/usr/bin/caddy")}
CHROMIUM_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def main() -> None:
    """Parse the flags and bring the environment up to date, under a lock."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--extra", choices=("all", "dev"), default="all", help="what to install (dev includes all)")
    parser.add_argument("--chromium", action="store_true", help="also make sure that Chromium is installed")
    parser.add_argument(
        "--compiler",
        action="store_true",
        help="also make sure that a C++ compiler is installed; a new environment gets the C++ operators meanwhile",
    )
    parser.add_argument("--proxies", action="store_true", help="also make sure that nginx and Caddy are installed")
    options = parser.parse_args()
    VENV.mkdir(parents=True, exist_ok=True)
    with open(VENV / ".agon-lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two installs into one environment would break it
        if options.chromium:
            ensure_chromium()
        if options.compiler:
            ensure_compiler()
        if options.proxies:
            ensure_proxies()
        ensure_environment(options.extra, builds_operators=options.compiler)


def say(text: str) -> None:
    """Print one line of progress."""
    print(f"[bootstrap] {text}", flush=True)


def fail(text: str) -> NoReturn:
    """End with exit code 1 and `text`."""
    raise SystemExit(f"[bootstrap] {text}")


def ensure_environment(extra: str, *, builds_operators: bool = False) -> None:
    """Make or refresh the virtual environment, unless its stamp already covers what is wanted. `builds_operators`: also
    build the C++ operators for which this processor has instructions, while pip installs on one core."""
    wanted = {"root": str(ROOT), "dependencies": dependencies_digest(), "extra": extra}
    stamp = read_stamp()
    if stamp is not None and is_covered(wanted, stamp) and venv_python().exists():
        return
    started = time.monotonic()
    other = stamp.get("root") if stamp is not None and stamp.get("root") != wanted["root"] else None
    # An environment inside the tree was moved with it, and its scripts point to the old place: make it again. One that
    # AGON_VENV names elsewhere is intact and may hold other packages: keep it and install into it.
    if (other is not None and VENV.is_relative_to(ROOT)) or not is_whole_venv():
        make_venv()
    elif other is not None:
        say(f"{VENV} was made for {other}; from now on its agon is the one in {ROOT}")
    say(f"installing agon[{extra}] into {VENV} (takes minutes if nothing is cached)")
    STAMP.unlink(missing_ok=True)
    target = f"{ROOT}[{extra},gpu]" if has_nvidia_gpu() else f"{ROOT}[{extra}]"
    build = start_build() if builds_operators else None
    install([*torch_source(), "--editable", target])
    if build is not None and build.wait() != 0:
        say("the C++ operators could not be built; the first start of an engine says why")
    STAMP.write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")
    say(f"environment ready after {time.monotonic() - started:.0f} s")


def install(arguments: list[str]) -> None:
    """Install into the environment: with uv, which takes a fifth of the time, from the places that pip is configured
    with; with pip where uv is not to be had, cannot be told the configuration, or fails."""
    python = str(venv_python())
    environment = uv_environment(read_output([python, "-m", "pip", "config", "list"]), dict(os.environ))
    if environment is not None and has_uv(python):
        compiles = [] if os.environ.get("PIP_NO_COMPILE") else ["--compile-bytecode"]
        # As pip does: the best version of all indexes, and of the releases before the final one only if asked for.
        uv = [python, "-m", "uv", "pip", "install", "--python", python, "--index-strategy", "unsafe-best-match"]
        command = [*uv, "--no-config", *compiles, *arguments]
        if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode == 0:
            return
        say("uv could not install it; trying with pip")
    run([python, "-m", "pip", "install", *arguments], "pip install")


def has_uv(python: str) -> bool:
    """Whether uv is in the environment, if need be after its installation."""
    command = [python, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "uv>=0.5"]
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def uv_environment(pip_config: str, environment: dict[str, str]) -> dict[str, str] | None:
    """The environment in which uv installs what pip would with the configuration that `pip config list` prints; None if
    pip is configured with what uv cannot be told. Variables of uv that are set already stay."""
    sections = {"global": 0, "install": 1, ":env:": 2}  # the later ones count
    found: dict[str, tuple[int, str]] = {}
    for line in pip_config.splitlines():
        name, separator, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if not separator or section not in sections or key in NOT_FOR_UV:
            continue
        if key not in UV_VARIABLES:
            return None
        place = sections[section], value.strip("'\"").replace("\\n", " ")
        found[key] = max(found.get(key, place), place)
    told = {UV_VARIABLES[key]: " ".join(value.split()) for key, (_, value) in sorted(found.items())}
    if "UV_FIND_LINKS" in told:
        told["UV_FIND_LINKS"] = told["UV_FIND_LINKS"].replace(" ", ",")
    return {**told, **environment}


def start_build() -> subprocess.Popen[bytes]:
    """Begin to build the C++ operators into their cache, at low priority."""
    command = [str(venv_python()), "-m", "engine.kernels.cpu", "--usable"]
    nice = ["nice"] if shutil.which("nice") else []
    return subprocess.Popen([*nice, *command], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def dependencies_digest() -> str:
    """SHA-256 of the part of pyproject.toml that says what to install, without the tools' settings after it."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return hashlib.sha256(text.split("\n[tool.ruff", 1)[0].encode()).hexdigest()


def read_stamp() -> dict[str, str] | None:
    """What the last install wrote; None without one."""
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return stamp if isinstance(stamp, dict) else None


def is_covered(wanted: dict[str, str], stamp: dict[str, str]) -> bool:
    """True if the installed extra and dependencies include the wanted ones."""
    return {**wanted, "extra": ""} == {**stamp, "extra": ""} and stamp.get("extra") in (wanted["extra"], "dev")


def venv_python() -> Path:
    """The interpreter of the virtual environment."""
    return VENV / "bin" / "python"


def is_whole_venv() -> bool:
    """False after an interrupted creation, which leaves no pip or an interpreter that installs outside the folder."""
    has_own_pip = "pip.__file__.startswith(sys.argv[1])"
    code = f"import pip, sys; sys.exit(not ({has_own_pip} and (3, 11) <= sys.version_info[:2] < (3, 14)))"
    try:
        probe = subprocess.run([str(venv_python()), "-c", code, f"{VENV}/"], capture_output=True, check=False)
    except OSError:
        return False
    return probe.returncode == 0


def make_venv() -> None:
    """Create the virtual environment anew; fails if VENV is a folder that is none."""
    leftovers = [path for path in VENV.iterdir() if path.name != ".agon-lock"]
    if leftovers and not (VENV / "pyvenv.cfg").exists():
        fail(f"{VENV} exists and is no virtual environment; move it away, or set AGON_VENV to another folder.")
    for path in leftovers:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    python = choose_interpreter()
    say(f"making {VENV} with {python}")
    (VENV / "pyvenv.cfg").touch()  # marks the folder as ours if the creation is interrupted
    run([python, "-m", "venv", str(VENV)], "python -m venv")


def choose_interpreter() -> str:
    """A Python for which a local CPU build of torch exists, else the newest usable one."""
    candidates = usable_interpreters()
    if not candidates:
        fail(
            "no Python 3.11, 3.12 or 3.13 with the venv module was found on PATH. "
            "Install one (Debian, Ubuntu: `apt install python3 python3-venv`) or set AGON_PYTHON to its path."
        )
    local = local_torch_tags(candidates[0][1])
    for version, python in candidates:
        if not has_nvidia_gpu() and f"cp{version[0]}{version[1]}" in local:
            return python
    return candidates[0][1]


def usable_interpreters() -> list[tuple[tuple[int, int], str]]:
    """Version and path of each supported Python that has the venv module, the newest first."""
    names = [os.environ["AGON_PYTHON"]] if os.environ.get("AGON_PYTHON") else []
    names = names or [*(f"python{major}.{minor}" for major, minor in VERSIONS), "python3", sys.executable]
    code = "import ensurepip, sys, venv; print(*sys.version_info[:2], sys.executable)"
    found: dict[tuple[int, int], str] = {}
    for name in names:
        path = shutil.which(name)
        if path is None:
            continue
        answer = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            major, minor, executable = answer.stdout.strip().split(" ", 2)
            found.setdefault((int(major), int(minor)), executable)
    return [(version, found[version]) for version in VERSIONS if version in found]


def has_nvidia_gpu() -> bool:
    """True if the NVIDIA driver is loaded."""
    return Path("/proc/driver/nvidia/version").exists()


def torch_source() -> list[str]:
    """Arguments for pip that select the CPU build of torch if there is no NVIDIA GPU; the CUDA build has gigabytes."""
    if sys.platform != "linux" or has_nvidia_gpu():
        return []
    answer = subprocess.run(
        [str(venv_python()), "-c", "import sys; print('cp%d%d' % sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=True,
    )
    if answer.stdout.strip() in local_torch_tags(str(venv_python())):
        say("no NVIDIA GPU: taking the CPU build of torch that pip's find-links has")
        return []
    request = urllib.request.Request(f"{CPU_INDEX}/torch/", method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=5):
            say(f"no NVIDIA GPU: taking the CPU build of torch from {CPU_INDEX}")
            return ["--extra-index-url", CPU_INDEX]
    except (OSError, urllib.error.URLError):
        say(f"no NVIDIA GPU, but {CPU_INDEX} does not answer: torch comes with its CUDA packages (gigabytes)")
        return []


def local_torch_tags(python: str) -> set[str]:
    """Interpreter tags (cp311, ...) for which a folder of pip's find-links has a matching CPU wheel of torch."""
    bounds = re.search(r'"torch>=(\d+)\.(\d+),<(\d+)\.(\d+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    if bounds is None:
        return set()
    lowest, below = (int(bounds[1]), int(bounds[2])), (int(bounds[3]), int(bounds[4]))
    wheel = re.compile(r"torch-(\d+)\.(\d+)[.\d]*\+cpu-(cp\d+)-\3-.*" + re.escape(platform.machine()) + r"\.whl")
    tags = set()
    for folder in find_links(python):
        for path in folder.glob("torch-*.whl"):
            found = wheel.fullmatch(path.name)
            if found and lowest <= (int(found[1]), int(found[2])) < below:
                tags.add(found[3])
    return tags


def find_links(python: str) -> list[Path]:
    """The local folders of pip's find-links."""
    configured = os.environ.get("PIP_FIND_LINKS")
    if not configured:
        configured = read_output([python, "-m", "pip", "config", "get", "global.find-links"])
    places = [Path(place.removeprefix("file://")) for place in configured.split()]
    return [place for place in places if place.is_dir()]


def read_output(command: list[str]) -> str:
    """What a command prints; nothing if it fails."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def ensure_chromium() -> None:
    """Make sure that a browser for the tests is there; install it if that needs no password."""
    chosen = os.environ.get("AGON_CHROMIUM")
    names = (chosen,) if chosen else CHROMIUM_NAMES
    if any(map(shutil.which, names)):
        return
    ways = "Install Chromium (Debian: `apt install chromium`), or set AGON_CHROMIUM to a browser that is there."
    if chosen:
        fail(f"the browser tests need Chromium, and it cannot be installed from here. {ways}")
    install_package("Chromium", "the browser tests", names, ["chromium", "fonts-dejavu-core"], ways)


def ensure_compiler() -> None:
    """Make sure that a C++ compiler for the tests is there; without one the engine would use torch operators."""
    names = (*filter(None, [os.environ.get("CXX")]), *COMPILER_NAMES)
    if not any(map(shutil.which, names)):
        ways = "Install one (Debian: `apt install g++`), or set CXX to one that is there."
        install_package("a C++ compiler", "the tests of the operators", names, ["g++", "libc6-dev"], ways)


def ensure_proxies() -> None:
    """Make sure that the proxies of docs/proxy.md are there for its tests; Caddy only where apt has it."""
    for name, names in PROXY_NAMES.items():
        if any(map(shutil.which, names)):
            continue
        known = (
            subprocess.run(["apt-cache", "show", name], capture_output=True, check=False) if name == "caddy" else None
        )
        if known is None or known.returncode == 0:
            ways = f"Install it (Debian: `apt install {name}`)."
            install_package(name, "the tests of docs/proxy.md", names, [name], ways)


def install_package(title: str, needed_by: str, names: tuple[str, ...], packages: list[str], ways: str) -> None:
    """Install with apt, as root or with sudo without a password; fails with what to do instead."""
    apt = shutil.which("apt-get")
    root = root_prefix()
    if apt is None or root is None:
        fail(f"{needed_by} need {title}, and it cannot be installed from here. {ways}")
    say(f"installing {title} for {needed_by}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run([*root, apt, "update", "-qq"], "apt-get update", environment)
    run([*root, apt, "install", "-y", "-qq", "--no-install-recommends", *packages], "apt-get install", environment)
    if not any(map(shutil.which, names)):
        fail(f"apt installed no usable {title}. {ways}")


def root_prefix() -> list[str] | None:
    """The prefix of a command that only root may run; None if that needs a password."""
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    may = sudo is not None and subprocess.run([sudo, "-n", "true"], capture_output=True, check=False).returncode == 0
    return [sudo, "-n", "--preserve-env=DEBIAN_FRONTEND"] if sudo is not None and may else None


def run(command: list[str], title: str, environment: dict[str, str] | None = None) -> None:
    """Run a command in ROOT; fails with a hint if its exit code is not 0."""
    try:
        subprocess.run(command, check=True, cwd=ROOT, env=environment)
    except subprocess.CalledProcessError as error:
        fail(f"{title} failed with exit code {error.returncode}; run the same command again to resume.")


if __name__ == "__main__":
    main()
