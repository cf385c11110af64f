"""The page of a match audit: one static file with folded reasoning and buttons for a reviewer's verdicts.

The only script is ours, allowed by its hash in the page's own policy, so that text of a model can never run.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from spiral_lib import durable, report_verdicts
from spiral_lib.evaluation import regret
from spiral_lib.match_audit import STRATA, Reviewed, ReviewedTurn, digest, draw
from spiral_lib.report_style import framed, page, section

# Keeps the verdicts in the page alone; the download is the file that `spiral report RUN --verdicts` takes.
_SCRIPT = """
(function () {
  var root = document.getElementById("sample"), verdicts = {};
  root.addEventListener("click", function (event) {
    var button = event.target.closest("button[data-verdict]");
    if (!button) return;
    var group = button.parentNode;
    verdicts[group.dataset.key] = button.dataset.verdict;
    group.querySelectorAll("button").forEach(function (b) { b.setAttribute("aria-pressed", String(b === button)); });
    group.closest("details").querySelector("summary").dataset.judged = button.textContent;
    document.getElementById("count").textContent = Object.keys(verdicts).length;
  });
  document.getElementById("save").addEventListener("click", function () {
    var name = document.getElementById("reviewer").value || "reviewer";
    var content = {version: 1, sample: root.dataset.sample, reviewer: name, verdicts: verdicts};
    var link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(content, null, 1)], {type: "application/json"}));
    link.download = "verdicts-" + name.replace(/[^A-Za-z0-9_.-]/g, "_") + ".json";
    link.click();
  });
})();
"""
_BUTTON_STYLE = (
    "<style>.spiral button{font:inherit;padding:.2rem .7rem;margin:.2rem .4rem .2rem 0;border:1px solid var(--line);"
    "border-radius:6px;background:var(--card);color:var(--ink);cursor:pointer}"
    ".spiral button[aria-pressed=true]{border-color:var(--c0);font-weight:600;outline:2px solid var(--c0)}"
    '.spiral summary[data-judged]::after{content:" \\2713\\00a0" attr(data-judged);font-weight:600}</style>'
)


def write(run: Path, *, matches: int, seed: int = 0) -> Path:
    """Draw a sample of the run's matches and write ``match_audit/index.html``; return its path.

    The sample's keys go beside it as ``sample.json``, to which verdicts are held.
    """
    sample = draw(run, matches=matches, seed=seed)
    folder = run / report_verdicts.FOLDER
    keys = {one.key: one.stratum for one in sample}
    report_verdicts.write_sample(run, report_verdicts.Sample(id=digest(sample), seed=seed, strata=keys))
    durable.write_text(folder / "index.html", document(run.resolve().name, sample))
    return folder / "index.html"


def document(name: str, sample: Sequence[Reviewed]) -> str:
    """Return the whole page."""
    script_hash = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{script_hash}'"
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    parts = "".join(
        section(f"{STRATA[stratum]}".capitalize(), "".join(_match(one) for one in group))
        for stratum, group in groupby(sample, key=lambda one: one.stratum)
    )
    intro = (
        f"<h1>Match audit of {html.escape(name)}</h1>"
        f'<p class="soft">{len(sample)} matches, drawn by stratum. Judge whether the reasoning supports the move, not '
        "whether the match was won.</p>"
        f'<div class="head"><p><label>Reviewer <input id="reviewer" maxlength="40"></label> '
        f'<button id="save" type="button">Download verdicts</button> '
        f'<span class="soft"><span id="count">0</span> of {len(sample)} judged; then '
        f"<code>spiral report RUN --verdicts FILE</code></span></p></div>"
    )
    body = f'{_BUTTON_STYLE}{intro}<div id="sample" data-sample="{digest(sample)}">{parts}</div>'
    return page(f"Match audit of {name}", f"{framed(body)}<script>{_SCRIPT}</script>", head=head)


def _match(one: Reviewed) -> str:
    episode = one.episode
    result = f"{episode.returns[one.seat]:+.2f}"
    odd = sum(bool(t.flags) for t in one.turns if t.turn.player == one.seat)
    flagged = f' <b class="bad">{odd} flagged</b>' if odd else ""
    heading = html.escape(
        f"iteration {one.iteration}, {episode.game} {episode.id}, seat {one.seat}: {episode.end_reason.value}, {result}"
    )
    buttons = "".join(
        f'<button type="button" data-verdict="{name}" aria-pressed="false">{label}</button>'
        for name, label in report_verdicts.VERDICTS.items()
    )
    turns = "".join(_turn(t, episode.game, own=t.turn.player == one.seat) for t in one.turns)
    group = f'<div data-key="{html.escape(one.key)}">{buttons}</div>'
    return f"<details><summary>{heading}{flagged}</summary>{turns}{group}</details>"


def _turn(reviewed: ReviewedTurn, game: str, *, own: bool) -> str:
    turn = reviewed.turn
    move = f"<code>{html.escape(turn.action)}</code>" if turn.action else "no move"
    parts = [f"<b>{html.escape(turn.role)}</b> ({html.escape(turn.policy)}) played {move}"]
    if reviewed.best:
        label = "solver" if reviewed.is_exact else "strong play"
        moves = ", ".join(
            f"<code>{html.escape(action)}</code>" + ("" if p > 0.9995 else f" {100 * p:.0f} %")
            for action, p in list(reviewed.best.items())[:4]
        )
        parts.append(f"{label}: {moves}")
    if reviewed.regret is not None:
        css = "good" if reviewed.regret <= regret.slack(game) else "bad"
        parts.append(f'<span class="{css}">regret {reviewed.regret:.3f}</span>')
    parts += [f'<b class="bad">{html.escape(flag)}</b>' for flag in reviewed.flags]
    mark = ' <span class="soft">(under review)</span>' if own else ""
    reply = f'<details><summary class="soft">reasoning</summary><pre>{html.escape(turn.text)}</pre></details>'
    return f'<p>{" · ".join(parts)}{mark}</p><pre class="soft">{html.escape(turn.observation)}</pre>{reply}'

