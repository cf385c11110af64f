"""The notebook and what it is made of; its cells are executed without a notebook server."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from spiral_lib import notebook
from spiral_lib.errors import ConfigError

NOTEBOOK = Path(__file__).parents[1] / "examples" / "quickstart.ipynb"


def _code_cells() -> list[str]:
    content = json.loads(NOTEBOOK.read_text())
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]


def test_the_quickstart_is_ten_lines_of_valid_code_without_stored_output() -> None:
    cells = _code_cells()
    lines = [line for cell in cells for line in cell.splitlines() if line]
    assert 5 <= len(lines) <= 10
    for cell in cells:
        compile(cell, "quickstart", "exec")
    assert all(not c.get("outputs") for c in json.loads(NOTEBOOK.read_text())["cells"])


def test_a_scripted_match_is_shown_with_its_moves() -> None:
    match = notebook.play("kuhn_poker", "random", "optimal", seed=3)
    page = match._repr_html_()
    assert match.episode.policies == ("random", "optimal")
    assert all(turn.action in page for turn in match.episode.turns)


def test_a_curve_that_a_run_lacks_is_refused_with_the_names_it_has(micro_run: Path) -> None:
    run = notebook.Run(folder=micro_run)
    with pytest.raises(ConfigError, match="eval/bank/accuracy"):
        run.curve("eval/bank/acuracy")
    assert "<polyline" in run.curve("eval/bank/accuracy")._repr_html_()
    assert [row["iteration"] for row in run.metrics] == [0.0, 1.0, 2.0]


@pytest.mark.slow
def test_the_quickstart_runs_from_top_to_bottom(tmp_path: Path) -> None:
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        names: dict[str, object] = {}
        for cell in _code_cells():
            exec(compile(cell, "quickstart", "exec"), names)
    finally:
        os.chdir(before)
    assert "No collapse" in names["run"]._repr_html_() or "collapse alarm" in names["run"]._repr_html_()  # type: ignore[attr-defined]
    assert (tmp_path / "runs" / "quickstart" / "report.html").is_file()
