"""Flyte tasks: thin wrappers around ``spiral_lib.steps``.

``pyflyte run --remote`` ships only modules that are loaded at registration, so every module of the project is imported
here; a test keeps the list complete.
"""

import importlib
import pkgutil
import sys
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

import spiral_lib

TORCH_AT_THE_TOP = ("spiral_lib.engines._", "spiral_lib.learner.deepspeed_backend")
"""How modules are named whose classes need torch when they are defined: shipped too, but not executed before use."""


class _NotExecutedYet(ModuleType):
    """A module that registration finds by its file; its code runs when the first of its own names is looked up."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self.__spec__ is None or self.__spec__.loader is None:
            raise AttributeError(name)
        self.__class__ = ModuleType  # type: ignore[assignment]
        try:
            self.__spec__.loader.exec_module(self)
        except BaseException:
            sys.modules.pop(self.__name__, None)
            raise
        return getattr(self, name)


def load_all(package: ModuleType) -> list[str]:
    """Import every module below a package and return their names."""
    names = [m.name for m in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
    for name in names:
        if name.startswith(TORCH_AT_THE_TOP):
            _register(name)
        else:
            importlib.import_module(name)
    return names


def _register(name: str) -> None:
    spec = find_spec(name)
    if spec is None or name in sys.modules:
        return
    module = sys.modules[name] = module_from_spec(spec)
    module.__class__ = _NotExecutedYet
    parent, _, child = name.rpartition(".")
    setattr(sys.modules[parent], child, module)


SHIPPED = load_all(spiral_lib)
