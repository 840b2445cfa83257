"""The rules of the code base that a person would otherwise have to watch."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINES_PER_FUNCTION_MAX = 70
LINES_PER_FILE_MAX = 500
SOURCE_ROOTS = ("runtime", "operator")


def tracked(suffix: str) -> list[Path]:
    """Files of the working tree that git tracks or would track, generated stubs left out."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", f"*{suffix}"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\n")
    files = (ROOT / name for name in sorted(set(listed)) if name)
    return [file for file in files if file.exists() and "_pb2" not in file.name]


PYTHON_FILES = tracked(".py")


@pytest.mark.parametrize("root", SOURCE_ROOTS)
def test_source_roots_hold_no_package_file(root: str):
    """A package called ``operator`` would shadow the standard library (design.md §1)."""
    assert not (ROOT / root / "__init__.py").exists()


def test_functions_are_at_most_seventy_lines():
    """A function that a reader cannot see whole hides its control flow."""
    too_long = []
    for file in PYTHON_FILES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                lines = node.end_lineno - node.lineno + 1
                if lines > LINES_PER_FUNCTION_MAX:
                    too_long.append(f"{file.relative_to(ROOT)}:{node.lineno} {node.name}: {lines}")
    assert too_long == []


def test_files_are_at_most_five_hundred_lines():
    """A module is one noun or one activity."""
    lengths = {file: file.read_text(encoding="utf-8").count("\n") for file in PYTHON_FILES}
    too_long = [f"{file.relative_to(ROOT)}: {lines}" for file, lines in lengths.items() if lines > LINES_PER_FILE_MAX]
    assert too_long == []


IMPURE_MODULES = frozenset(
    [
        "asyncio",
        "threading",
        "time",
        "random",
        "os",
        "sys",
        "io",
        "socket",
        "subprocess",
        "logging",
        "pathlib",
        "tempfile",
        "uuid",
        "secrets",
        "datetime",
        "multiprocessing",
        "concurrent",
        "signal",
        "select",
    ]
)
IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "breakpoint"})


def imported_modules(tree: ast.AST) -> set[str]:
    """Top-level names of all modules that a file imports, at whatever depth of the file."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


def test_core_has_no_clock_no_randomness_and_no_io():
    """Decisions take ``now``: the core can then be simulated and replayed (design.md §2.1-3)."""
    faults = []
    for file in (ROOT / "runtime/harness_core").rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        faults += [f"{file.name} imports {name}" for name in sorted(imported_modules(tree) & IMPURE_MODULES)]
        faults += [
            f"{file.name}:{node.lineno} calls {node.func.id}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS
        ]
    assert faults == []


def test_core_imports_only_itself_and_the_standard_library():
    """The core may one day be compiled from the same source (mypyc); a dependency would end that."""
    allowed = {"__future__", "harness_core", "bisect", "collections", "dataclasses", "enum", "functools", "heapq"}
    allowed |= {"itertools", "json", "math", "operator", "typing", "types", "abc", "contextlib"}
    faults = []
    for file in (ROOT / "runtime/harness_core").rglob("*.py"):
        names = imported_modules(ast.parse(file.read_text(encoding="utf-8")))
        faults += [f"{file.name} imports {name}" for name in sorted(names - allowed)]
    assert faults == []


def test_core_never_iterates_over_sets_of_strings():
    """Iteration order of such a set differs between processes (hash seeds), and so would decisions."""
    faults = []
    for file in (ROOT / "runtime/harness_core").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            iterated = node.iter if isinstance(node, ast.For | ast.comprehension) else None
            if isinstance(iterated, ast.Set | ast.SetComp) or (
                isinstance(iterated, ast.Call) and getattr(iterated.func, "id", "") in {"set", "frozenset"}
            ):
                faults.append(f"{file.name}:{iterated.lineno}")
    assert faults == []


TORCH_PLACES = (
    "runtime/harness_runtime/executor/",
    "runtime/harness_runtime/profiler",
    "tests/",
    "examples/",
    "benchmarks/",
)


def test_torch_is_imported_only_by_executors_and_examples():
    """The slim runtime, the gateway and the operator hold no torch (design.md §1)."""
    faults = [
        str(file.relative_to(ROOT))
        for file in PYTHON_FILES
        if "torch" in imported_modules(ast.parse(file.read_text(encoding="utf-8")))
        and not str(file.relative_to(ROOT)).startswith(TORCH_PLACES)
    ]
    assert faults == []


def test_no_unfinished_work_is_marked_in_the_code():
    """Unfinished work lives in issues."""
    marks = ("TO" + "DO", "FIX" + "ME")  # spelt apart, or this file would be the one fault
    faults = [
        f"{file.relative_to(ROOT)}: {mark}"
        for file in PYTHON_FILES
        for mark in marks
        if mark in file.read_text(encoding="utf-8")
    ]
    assert faults == []


def test_every_package_says_why_it_exists():
    """The first lines of a package are where a reader starts."""
    silent = []
    for file in PYTHON_FILES:
        in_source = file.relative_to(ROOT).parts[0] in SOURCE_ROOTS
        if (
            file.name == "__init__.py"
            and in_source
            and not ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
        ):
            silent.append(str(file.relative_to(ROOT)))
    assert silent == []
