"""Flyte tasks: thin wrappers around ``spiral_lib.steps``.

``pyflyte run --remote`` ships only modules that are loaded at registration, so every module of the project is imported
here; a test keeps the list complete.
"""

import importlib
import pkgutil
import sys
from importlib.util import LazyLoader, find_spec, module_from_spec
from types import ModuleType

import spiral_lib

TORCH_AT_THE_TOP = "spiral_lib.engines._"
"""How modules are named whose classes need torch when they are defined: shipped too, but not executed before use."""


def load_all(package: ModuleType) -> list[str]:
    """Import every module below a package and return their names."""
    names = [m.name for m in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
    for name in names:
        if name.startswith(TORCH_AT_THE_TOP):
            _import_lazily(name)
        else:
            importlib.import_module(name)
    return names


def _import_lazily(name: str) -> None:
    """Put a module where registration finds it; its code runs when the first of its names is looked up."""
    spec = find_spec(name)
    if name in sys.modules or spec is None or spec.loader is None:
        return
    spec.loader = LazyLoader(spec.loader)
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)


SHIPPED = load_all(spiral_lib)
