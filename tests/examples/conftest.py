"""Loads the examples' modules, which live in folders that are no packages, and exports each model once."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="session")
def examples() -> Path:
    """The folder of the examples."""
    return EXAMPLES


@pytest.fixture
def embedding_path(monkeypatch):
    """The text-embedding example's modules can be imported by their own names."""
    monkeypatch.syspath_prepend(str(EXAMPLES / "text-embedding"))


@pytest.fixture(scope="session")
def load_module():
    """Load a file of an example under a name that no other example uses."""

    def load(path: str) -> ModuleType:
        file = EXAMPLES / path
        name = f"example_{path.replace('/', '_').replace('-', '_').removesuffix('.py')}"
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    return load
