"""Figures of the code's structure, as JSON: `python .ci/structure.py [ROOT]`. Runs nothing of the project.

Sizes are lines of files and of functions, nesting is the depth of compound statements inside a function, parameters
leave out `self` and `cls`. Public names are modules' functions, classes and their methods without a leading underscore.
Import circles are strongly connected components of modules; imports for types only do not count.
"""

import ast
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

PACKAGES = ("wire", "ratings", "service_kit", "engine", "controller", "model_worker", "webui", "cli")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPOUND = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)


def main(root: Path) -> None:
    """Print the figures of the checkout at `root`."""
    files = subprocess.check_output(["git", "ls-files", "*.py"], cwd=root, text=True).split()
    product = {file: _parse(root / file) for file in files if file.split("/")[0] in PACKAGES}
    tests = {file: _parse(root / file) for file in files if file.startswith("tests/")}
    figures = {
        "files": len(product),
        "files per folder": dict(Counter(str(Path(file).parent) for file in product).most_common(12)),
        "lines per file": _spread([len((root / file).read_text().splitlines()) for file in product]),
        "lines per function": _spread([_num_lines(f) for f in _functions(product)]),
        "nesting": _spread([_nesting(f) for f in _functions(product)]),
        "parameters": _spread([_num_parameters(f) for f in _functions(product)]),
        "import circles": _num_circles(product),
        "docstrings of public names": _share([ast.get_docstring(node) is not None for node in _public(product)]),
        "docstrings of public functions": _share(
            [ast.get_docstring(node) is not None for node in _public(product) if isinstance(node, _FUNCTIONS)]
        ),
        "typed functions of tests/engine": _share(
            [_is_typed(f) for f in _functions({k: v for k, v in tests.items() if k.startswith("tests/engine/")})]
        ),
        "typed functions of tests": _share([_is_typed(f) for f in _functions(tests)]),
        "Any in product code": sum(
            isinstance(node, ast.Name) and node.id == "Any" for tree in product.values() for node in ast.walk(tree)
        ),
    }
    print(json.dumps(figures, indent=1))


def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _functions(trees: dict[str, ast.Module]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for tree in trees.values():
        yield from (node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS))


def _public(trees: dict[str, ast.Module]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for tree in trees.values():
        yield from public_in(tree)


def public_in(scope: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Functions and classes of a module or class without a leading underscore, and those inside such classes."""
    for node in scope.body:
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public_in(node)


def _num_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def _nesting(node: ast.AST, depth: int = 0) -> int:
    deepest = depth
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
            continue
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        deepest = max(deepest, _nesting(child, depth + (isinstance(child, _COMPOUND) and not is_elif)))
    return deepest


def _num_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def _is_typed(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    return function.returns is not None and all(
        a.annotation is not None for a in arguments if a.arg not in ("self", "cls")
    )


def _num_circles(trees: dict[str, ast.Module]) -> int:
    names = {file.removesuffix(".py").removesuffix("/__init__").replace("/", "."): tree for file, tree in trees.items()}
    graph = {name: {found for found in _imports(tree, names) if found != name} for name, tree in names.items()}
    reach = {name: _reachable(graph, name) for name in graph}
    circles = {frozenset(b for b in reach[a] if a in reach[b]) for a in graph if a in reach[a]}
    return len(circles)


def _imports(node: ast.AST, names: dict[str, ast.Module]) -> Iterator[str]:
    """Modules that are imported when the module itself is: not inside functions, not for types only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _FUNCTIONS) or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)):
            continue
        if isinstance(child, ast.ImportFrom) and child.module:
            inside = [f"{child.module}.{alias.name}" for alias in child.names]
            yield from {name if name in names else child.module for name in inside} & names.keys()
        elif isinstance(child, ast.Import):
            yield from {alias.name for alias in child.names} & names.keys()
        else:
            yield from _imports(child, names)


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    todo = list(graph[start])
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo.extend(graph[name])
    return found


def _spread(values: Sequence[int]) -> dict[str, int]:
    ordered = sorted(values)
    return {"p50": ordered[len(ordered) // 2], "p90": ordered[len(ordered) * 9 // 10], "max": ordered[-1]}


def _share(flags: Sequence[bool]) -> str:
    return f"{sum(flags)} of {len(flags)} ({sum(flags) / len(flags):.1%})"


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent)
