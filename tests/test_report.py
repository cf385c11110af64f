"""The page of a run and of two runs: complete, self-contained, honest about chance, safe against model text."""

from __future__ import annotations

import dataclasses
import html.parser
import io
import json
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spiral_lib import compare, measures, report, report_quality, watch
from spiral_lib.errors import LineageError
from spiral_lib.ledger import Champion, DecisionRecord
from spiral_lib.report_files import read_metrics
from spiral_lib.types import Decision

EVIL = '</pre></details><script>alert("x")</script><img src=http://evil.test/x onerror=alert(1)>'
VOID = {"br", "meta", "img", "line", "circle", "polygon", "polyline"}


class _Balance(html.parser.HTMLParser):
    """Collects tags and addresses, and fails on a tag that closes what is not open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.addresses: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]
        self.ids |= {value or "" for name, value in attrs if name == "id"}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
            self.open.pop()


def _parse(page: str) -> _Balance:
    parser = _Balance()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


@pytest.fixture
def run(micro_run: Path, tmp_path: Path) -> Path:
    """A copy of a finished run that a test may change."""
    copy = tmp_path / "copy"
    shutil.copytree(micro_run, copy)
    return copy


def test_the_page_has_every_section_and_nothing_from_outside(micro_run: Path) -> None:
    page = report.body(report.read(micro_run))
    parsed = _parse(page)
    wanted = {
        "outside-self-play", "payoffs", "roles", "collapse-monitors", "learner", "quality-gate", "gate",
        "opponent-pool", "sample-matches", "cost", "lineage",
    }  # fmt: skip
    assert wanted <= parsed.ids
    assert parsed.addresses and all(a.startswith("#") and a[1:] in parsed.ids for a in parsed.addresses)
    assert not parsed.seen & {"script", "link", "img", "iframe", "object"}
    assert "url(" not in page and "@import" not in page


def test_text_of_models_and_users_is_shown_and_never_interpreted(run: Path) -> None:
    samples = json.loads((run / "samples.json").read_text())
    for match in samples:
        match["game"] = match["end_reason"] = EVIL
        for turn in match["turns"]:
            turn.update(text=EVIL, observation=EVIL, action=EVIL, role=EVIL, policy=EVIL)
    (run / "samples.json").write_text(json.dumps(samples))
    files = dataclasses.replace(report.read(run), name=EVIL)
    page = report.body(files)
    assert not _parse(page).seen & {"script", "img"}
    assert page.count("&lt;script&gt;") >= 5


def test_reasons_of_gate_and_quarantine_are_escaped(run: Path) -> None:
    (run / "quarantine").mkdir(exist_ok=True)
    note = {"path": f"trajectories/iteration=0001/{EVIL}", "sha256": None, "reasons": [EVIL]}
    (run / "quarantine" / "a.json").write_text(json.dumps(note))
    files = report.read(run)
    decision = DecisionRecord(iteration=1, decision=Decision.HOLD, reasons=(EVIL,), alarms=(EVIL,))
    files = dataclasses.replace(files, ledger=dataclasses.replace(files.ledger, decisions=(decision,)))
    page = report.body(files)
    assert not _parse(page).seen & {"script", "img"}
    assert "1 taken out" in page


def test_an_alarm_is_marked_on_the_curve_that_raised_it_at_the_end_of_its_iteration(micro_run: Path) -> None:
    files = report.read(micro_run)
    decision = DecisionRecord(iteration=2, decision=Decision.ROLLBACK, alarms=("short_responses",))
    files = dataclasses.replace(files, ledger=dataclasses.replace(files.ledger, decisions=(decision,)))
    figures = [f for f in report.body(files).split("<figure>")[1:] if 'class="mark"' in f]
    assert len(figures) == 1
    assert "Median response length" in figures[0]
    assert "short responses at 2" in figures[0]
    assert "1 collapse alarm: short responses in iteration 2" in report.body(files)


def test_a_change_within_chance_is_called_not_significant() -> None:
    measure = measures.outside_self_play({"eval/bank/accuracy": 0.5})[0]
    wide = {"eval/bank/accuracy": 0.4, "eval/bank/accuracy_low": 0.2, "eval/bank/accuracy_high": 0.6}
    high = {"eval/bank/accuracy": 0.55, "eval/bank/accuracy_low": 0.35, "eval/bank/accuracy_high": 0.75}
    sure = {"eval/bank/accuracy": 0.9, "eval/bank/accuracy_low": 0.85, "eval/bank/accuracy_high": 0.95}
    assert measures.change(measure, wide, high).verdict == "not significant"
    assert measures.change(measure, wide, sure).verdict == "better"
    assert measures.change(measure, sure, wide).verdict == "worse"
    assert measures.change(measure, {"eval/bank/accuracy": 0.1}, {"eval/bank/accuracy": 0.9}).verdict == ""


def test_both_intervals_count_when_a_change_is_judged() -> None:
    name = "eval/bank/accuracy"
    measure = measures.outside_self_play({name: 0.5})[0]
    narrow = {name: 0.60, f"{name}_low": 0.58, f"{name}_high": 0.62}
    few = {name: 0.50, f"{name}_low": 0.20, f"{name}_high": 0.80}
    assert measures.change(measure, few, narrow).verdict == "not significant"


@pytest.mark.parametrize(("n", "verdict"), [(20, "too few items to say"), (21, "better")])
def test_a_change_on_few_items_is_not_judged_however_large_it_is(n: int, verdict: str) -> None:
    name = "eval/bank/accuracy"
    measure = measures.outside_self_play({name: 0.5})[0]
    before = {name: 0.1, f"{name}_low": 0.02, f"{name}_high": 0.3, f"{name}_n": 400.0}
    after = {name: 0.9, f"{name}_low": 0.7, f"{name}_high": 0.97, f"{name}_n": float(n)}
    change = measures.change(measure, before, after)
    assert change.verdict == verdict
    sentence = measures.answer([change])[1]
    assert sentence.startswith("Too few items to say: 1 measures" if n == 20 else "Better outside self-play: 1 of 1")


def test_the_headline_compares_the_champion_and_names_it(micro_run: Path) -> None:
    files = report.read(micro_run)
    name = "eval/kuhn_poker/exploitability"

    def row(value: float) -> dict[str, float]:
        return {name: value, f"{name}_low": value - 0.01, f"{name}_high": value + 0.01, f"{name}_n": 100.0}

    champion = Champion(iteration=1, checkpoint="c" * 64, metrics=row(0.1))
    ledger = dataclasses.replace(files.ledger, champion=champion)
    files = dataclasses.replace(files, ledger=ledger, iterations=((0, row(0.4)), (1, row(0.1)), (2, row(0.6))))
    page = report.headline(files)
    assert "Better outside self-play: 1 of 1" in page
    assert "The champion, iteration 1, against the cold start." in page
    assert '<th class="n">champion, iteration 1</th>' in page and "newest, iteration 2</th>" in page
    assert report.summary(files)[:2] == [
        "The champion, iteration 1, against the cold start: "
        "Better outside self-play: 1 of 1 measures significantly better, 0 worse.",
        f"{name}: 0.400 -> 0.100 better",
    ]
    never = dataclasses.replace(champion, iteration=0)
    files = dataclasses.replace(files, ledger=dataclasses.replace(ledger, champion=never))
    page = report.headline(files)
    assert "Worse outside self-play: 0 of 1" in page
    assert "The newest candidate, iteration 2, which the gate has not accepted, against the cold start." in page
    earlier = dataclasses.replace(champion, iteration=7)
    files = dataclasses.replace(files, ledger=dataclasses.replace(ledger, champion=earlier))
    assert "The champion, from an earlier run, against the cold start." in report.headline(files)


def test_a_cold_start_alone_is_compared_with_nothing(micro_run: Path) -> None:
    files = report.read(micro_run)
    champion = dataclasses.replace(files.ledger.champion, iteration=0)
    alone = dataclasses.replace(files.ledger, champion=champion, decisions=(), evaluations=files.ledger.evaluations[:1])
    files = dataclasses.replace(files, ledger=alone, iterations=files.iterations[:1])
    assert "This is the cold start alone." in report.headline(files)
    assert report.summary(files)[0].startswith("The cold start itself: ")
    assert not any(c.verdict in ("better", "worse") for c in report.against_cold_start(files))


def test_the_quality_section_shows_what_the_gate_counted_and_expected(micro_run: Path) -> None:
    files = report.read(micro_run)
    turns = pq.read_table(micro_run / "trajectories" / "iteration=0002" / "shard-00.parquet").num_rows
    assert files.iterations[2][1]["quality/rows"] == turns
    assert {e.rule for e in files.expectations} >= {"rows", "zero_sum", "logprobs", "episode_count"}
    section = report_quality.section(files)
    assert f'data-of="turns">{turns}</td>' in section and section.count("all passed") == 2
    assert f"{len(files.expectations)} expectations" in section and "of iteration 2: all hold" in section
    broken = (dataclasses.replace(files.expectations[0], success=False), *files.expectations[1:])
    section = report_quality.section(dataclasses.replace(files, expectations=broken))
    assert "<details open>" in section and "1 do not hold" in section


def test_lower_exploitability_is_better() -> None:
    name = "eval/kuhn_poker/exploitability"
    measure = measures.outside_self_play({name: 0.5})[0]
    before = {name: 0.4, f"{name}_low": 0.39, f"{name}_high": 0.41}
    after = {name: 0.1, f"{name}_low": 0.09, f"{name}_high": 0.11}
    change = measures.change(measure, before, after)
    assert change.verdict == "better"
    assert measures.answer([change])[0] == "good"
    assert measures.answer([measures.change(measure, after, before)])[0] == "bad"


def test_parts_of_a_measure_are_no_measures_of_their_own() -> None:
    names = ["eval/bank/accuracy", "eval/bank/accuracy_low", "eval/bank/add/accuracy", "eval/nim/vs_random/win_rate",
             "eval/nim/vs_random/mean_return", "rollout/invalid_rate", "eval/kuhn_poker/regret"]  # fmt: skip
    found = [m.name for m in measures.outside_self_play(dict.fromkeys(names, 0.5))]
    assert found == ["eval/kuhn_poker/regret", "eval/nim/vs_random/win_rate", "eval/bank/accuracy"]


def test_what_is_no_run_folder_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(LineageError, match=r"config\.yaml is missing"):
        report.read(tmp_path)


def test_a_damaged_line_of_metrics_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 0, "metrics": {"a": null}}\n{"iteration": 1, "metr')
    with pytest.raises(LineageError, match="line 2"):
        read_metrics(tmp_path / "metrics.jsonl", "iteration")


def test_a_damaged_step_record_does_not_stop_the_page(run: Path) -> None:
    next((run / "lineage").glob("*.json")).write_text("{")
    assert "spiral audit" in report.body(report.read(run))


def test_cost_adds_up_to_the_records(micro_run: Path) -> None:
    files = report.read(micro_run)
    total = sum(record.seconds for record in files.records)
    assert f"<b>{total:.1f}</b>" in report.body(files)


def test_equal_runs_have_equal_digests_and_changed_ones_do_not(micro_run: Path) -> None:
    from spiral_lib import report_parts

    files = report.read(micro_run)
    again = dataclasses.replace(files, records=tuple(dataclasses.replace(r, seconds=9.0) for r in files.records))
    fewer = dataclasses.replace(files, records=files.records[:-1])
    assert report_parts.digest(files) == report_parts.digest(again) != report_parts.digest(fewer)


def test_a_comparison_shows_what_was_set_differently_and_how_sure_the_difference_is(run: Path, micro_run: Path) -> None:
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("\nseed: 0", "\nseed: 5"))
    path = compare.write(micro_run, run)
    page = path.read_text()
    assert path == run / f"compare-{micro_run.name}.html"
    parsed = _parse(page)
    assert not parsed.seen & {"script", "link", "img"}
    assert re.search(r"<code>seed</code></td><td><code>0</code></td><td><code>5</code>", page)
    assert "too few items to say" in page and "several seeds" in page
    assert compare.settings(report.read(micro_run), report.read(run)) == [("seed", "0", "5")]


def test_a_run_compared_with_itself_is_said_to_be_the_same(micro_run: Path) -> None:
    files = report.read(micro_run)
    assert "computed the same" in compare.body(files, files)
    assert {c.verdict for c in compare.changes(files, files)} <= {"", "not significant", "too few items to say"}


def test_the_live_view_shows_curves_gate_and_alarms(micro_run: Path) -> None:
    from rich.console import Console

    files = report.read(micro_run)
    decision = DecisionRecord(iteration=2, decision=Decision.HOLD, reasons=("[bold]why",), alarms=("low_variety",))
    files = dataclasses.replace(files, ledger=dataclasses.replace(files.ledger, decisions=(decision,)))
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(watch.view(files))
    text = console.export_text()
    assert "2 of 2 iterations" in text
    assert "Exploitability" in text and "illegal turns" in text
    assert "[bold]why" in text and "! low variety in iteration 2" in text


@pytest.mark.parametrize(
    ("values", "shown"), [((0.0, 1.0), "▁█"), ((2.0, 2.0, 2.0), "▁▁▁"), ((5.0,), "▁"), ((1.0, 0.5, 0.0), "█▅▁")]
)
def test_a_terminal_curve_runs_from_its_least_to_its_greatest_value(values: tuple[float, ...], shown: str) -> None:
    assert watch.curve(values) == shown


def test_a_long_terminal_curve_is_averaged_to_its_width() -> None:
    shown = watch.curve([float(i) for i in range(1000)], width=24)
    assert len(shown) == 24
    assert shown[0] == "▁" and shown[-1] == "█"


def test_a_long_run_shows_its_first_its_last_and_some_in_between(micro_run: Path) -> None:
    from spiral_lib import report_parts

    files = report.read(micro_run)
    row, match = files.iterations[-1][1], files.samples[0]
    long = dataclasses.replace(
        files,
        iterations=tuple((i, row) for i in range(500)),
        samples=tuple({**match, "iteration": i} for i in range(1, 500)),
        records=files.records * 200,
    )
    page = report.body(long)
    assert "iteration 499" in page and page.count("<summary>iteration ") == 24
    assert page.count("<tr><th>iteration ") == 23 and "<tr><th>cold start</th>" in page
    assert "The newest 300 steps" in page
    assert report_parts.spread(range(100), 3) == [0, 50, 99]
    assert report_parts.spread([4, 5], 3) == [4, 5]
