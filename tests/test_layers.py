"""Who may import whom, read from the table in docs/architecture.md, and what the library never does."""

from __future__ import annotations

import ast
import fnmatch
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "spiral_lib"
HEAVY = {
    "torch", "transformers", "vllm", "deepspeed", "great_expectations", "lm_eval", "pyspiel", "open_spiel", "textarena",
    "pandas", "math_verify", "sympy", "gguf", "safetensors", "tokenizers", "datasets", "huggingface_hub",
}  # fmt: skip
TORCH_AT_THE_TOP = ("spiral_lib/engines/_*.py", "spiral_lib/learner/deepspeed_backend.py")
SOURCES = sorted(p for folder in ("spiral_lib", "tasks", "workflows") for p in (ROOT / folder).rglob("*.py"))


def table() -> list[tuple[list[str], list[str]]]:
    """Return (module patterns, forbidden patterns) of every row, lowest first."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| \w+ \| `([^`]+)`[^|]*\| (?:`([^`]+)`)? ?\|$", text, re.MULTILINE)
    return [(modules.split(), forbidden.split()) for modules, forbidden in rows]


def matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def row_of(name: str) -> int:
    found = [i for i, (modules, _) in enumerate(table()) if matches(name, modules)]
    assert len(found) == 1, f"'{name}' stands in {len(found)} rows of the table in docs/architecture.md, not in one"
    return found[0]


def unit(path: Path) -> str:
    """Return the module or package directly below spiral_lib that a file belongs to."""
    return path.relative_to(LIBRARY).with_suffix("").parts[0]


def units() -> list[str]:
    return sorted({unit(p) for p in LIBRARY.rglob("*.py")} - {"__init__"})


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield every imported module with its line, imports inside functions and for type checking included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            base = node.module or ""
            for alias in node.names:
                yield f"{base}.{alias.name}" if base == "spiral_lib" else base, node.lineno


def at_import_time(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the imports that run when the module is imported."""
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imports(ast.Module(body=[node], type_ignores=[]))
        pending += ast.iter_child_nodes(node)


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_every_module_stands_in_exactly_one_row_and_every_row_names_modules_that_exist() -> None:
    assert len(table()) == 10
    for name in units():
        row_of(name)
    for modules, forbidden in table():
        for pattern in modules + forbidden:
            assert any(fnmatch.fnmatchcase(name, pattern) for name in units()), f"no module '{pattern}'"


@pytest.mark.parametrize("name", units())
def test_a_module_imports_only_from_its_own_row_and_rows_above(name: str) -> None:
    forbidden = table()[row_of(name)][1]
    for path in (p for p in LIBRARY.rglob("*.py") if unit(p) == name):
        for module, line in imports(parsed(path)):
            other = module.split(".")[1] if module.startswith("spiral_lib.") else name
            if other == name:
                continue
            assert row_of(other) <= row_of(name), f"{name_of(path)}:{line} imports {module}, which stands lower"
            assert not matches(other, forbidden), f"{name_of(path)}:{line}: {name} never imports {other}"


def test_the_library_never_imports_flytekit_or_the_layers_above_it() -> None:
    for path in LIBRARY.rglob("*.py"):
        for module, line in imports(parsed(path)):
            top = module.partition(".")[0]
            assert not top.startswith("flyte") and top not in ("tasks", "workflows"), f"{name_of(path)}:{line}"


def test_workflows_hold_wiring_only() -> None:
    library = ("spiral_lib.config", "spiral_lib.presets")
    allowed = ("tasks", "workflows", "flytekit", *library, "functools", "typing", "datetime")
    for path in (ROOT / "workflows").glob("*.py"):
        for module, line in imports(parsed(path)):
            assert module.startswith(allowed), f"{name_of(path)}:{line} imports {module}"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_heavy_packages_are_imported_inside_functions_only(path: Path) -> None:
    if matches(name_of(path), list(TORCH_AT_THE_TOP)):
        pytest.skip("imported inside functions only, which the next test holds")
    for module, line in at_import_time(parsed(path)):
        assert module.partition(".")[0] not in HEAVY, f"{name_of(path)}:{line} imports {module} at the top"


def test_modules_with_torch_at_the_top_are_imported_inside_functions_only() -> None:
    heavy = {p.relative_to(ROOT).with_suffix("") for p in SOURCES if matches(name_of(p), list(TORCH_AT_THE_TOP))}
    exempt = {".".join(p.parts) for p in heavy}
    for path in (p for p in SOURCES if p.relative_to(ROOT).with_suffix("") not in heavy):
        for node in (n for n in parsed(path).body if isinstance(n, ast.ImportFrom)):
            names = {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
            found = {n for n in names & exempt if _is_heavy(n)}
            assert not found, f"{name_of(path)}:{node.lineno} imports {found} at the top"


def _is_heavy(module: str) -> bool:
    path = ROOT / (module.replace(".", "/") + ".py")
    return any(m.partition(".")[0] in HEAVY for m, _ in at_import_time(parsed(path)))


def speaks(path: Path) -> bool:
    """Return whether a file talks to a person: the command line, and modules that are programs as well."""
    return name_of(path).startswith("spiral_lib/cli/") or "__main__" in path.read_text(encoding="utf-8")


FORBIDDEN_CALLS = {
    "eval", "exec", "compile", "torch.load", "torch.save", "torch.manual_seed", "random.seed", "np.random.seed",
    "numpy.random.seed", "yaml.unsafe_load", "yaml.full_load", "pickle.load", "pickle.loads", "os.system",
    "torch.cuda.manual_seed_all", "transformers.set_seed", "set_seed",
}  # fmt: skip
GLOBAL_DRAWS = re.compile(r"^(random|np\.random|numpy\.random)\.(?!default_rng$|get_?state$|set_?state$)[a-z]\w*$")


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_no_source_prints_evaluates_text_unpickles_or_touches_global_random_state(path: Path) -> None:
    for module, line in imports(parsed(path)):
        assert module.partition(".")[0] not in {"pickle", "marshal", "shelve", "dill", "cloudpickle"}, f"line {line}"
    has_random = any(module == "random" for module, _ in imports(parsed(path)))
    for node in ast.walk(parsed(path)):
        if not isinstance(node, ast.Call):
            continue
        call = ast.unparse(node.func)
        if call.startswith("random.") and not has_random:
            continue  # a local generator of that name
        if path.stem.endswith("_child"):
            continue  # a process of its own, whose global state is nobody else's
        assert call not in FORBIDDEN_CALLS, f"{name_of(path)}:{node.lineno} calls {call}"
        assert not GLOBAL_DRAWS.match(call), f"{name_of(path)}:{node.lineno} draws from global state: {call}"
        assert call != "print" or speaks(path), f"{name_of(path)}:{node.lineno} prints; use logging"
