"""Flyte tasks: thin wrappers around ``spiral_lib.steps``.

``pyflyte run --remote`` ships only modules that are loaded at registration, so every module of the project is imported
here; a test keeps the list complete.
"""

import importlib
import pkgutil
from types import ModuleType

import spiral_lib


def load_all(package: ModuleType) -> list[str]:
    """Import every module below a package and return their names."""
    names = [m.name for m in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
    for name in names:
        importlib.import_module(name)
    return names


SHIPPED = load_all(spiral_lib)
