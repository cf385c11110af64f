"""The style sheet and frame of every page this package writes: light, dark, phone and print; nothing from outside."""

from __future__ import annotations

import html
from collections.abc import Container, Sequence

# Okabe-Ito, safe for colour-blind readers, and a lighter set of the same hues for dark backgrounds.
STYLE = """
.spiral{--ink:#1b1f24;--paper:#fff;--soft:#57606a;--line:#d8dee4;--card:#f6f8fa;--good:#0a6b4b;--bad:#a4400a;
--win:#0072b2;--loss:#d55e00;--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b4558c;--c4:#b07800;--c5:#3a94c8}
@media (prefers-color-scheme:dark){.spiral{--ink:#e6edf3;--paper:#0f1419;--soft:#9aa7b3;--line:#30363d;--card:#171d24;
--good:#5fd3a8;--bad:#ffa464;--win:#3d9bd6;--loss:#e8793a;
--c0:#56b4e9;--c1:#ff9457;--c2:#3fd0a4;--c3:#e79fca;--c4:#f0c24b;--c5:#8fa8ff}}
@media print{.spiral{--ink:#000;--paper:#fff;--soft:#444;--line:#bbb;--card:#fff;--good:#0a6b4b;--bad:#a4400a;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b4558c;--c4:#b07800;--c5:#3a94c8}}
.spiral,.spiral *{box-sizing:border-box}
.spiral{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);min-height:100vh;
padding:1rem max(1rem,calc((100% - 1060px)/2))}
.spiral h1{font-size:1.5rem;margin:.2rem 0;overflow-wrap:anywhere}
.spiral h2{font-size:1.15rem;margin:1.8rem 0 .6rem;border-bottom:1px solid var(--line)}
.spiral h3{font-size:1rem;margin:1rem 0 .3rem}.spiral p{margin:.4rem 0}
.spiral a{color:var(--c0)}.spiral nav{font-size:.88rem;margin:.5rem 0}
.spiral nav a{display:inline-block;margin:.1rem .9rem .1rem 0}
.spiral .head{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.7rem 1rem;margin:.8rem 0}
.spiral .head p{margin:.25rem 0}.spiral .head p.big{font-size:1.15rem;font-weight:600}
.spiral .good{color:var(--good)}.spiral .bad{color:var(--bad)}.spiral .soft{color:var(--soft)}
.spiral .grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,320px),1fr));gap:1rem;margin:.6rem 0}
.spiral figure{margin:0;border:1px solid var(--line);border-radius:8px;padding:.6rem;break-inside:avoid}
.spiral figcaption span{color:var(--soft);font-size:.85em}
.spiral figure>svg{display:block;width:100%;height:auto;max-height:320px}
.spiral svg text{font:13px system-ui,sans-serif;fill:var(--soft)}.spiral svg .rule{stroke:var(--line);stroke-width:.7}
.spiral svg .ref{stroke:var(--soft);stroke-dasharray:2 3}.spiral svg .ref-name{font-style:italic}
.spiral svg .mark{stroke:var(--bad);stroke-width:1.4;stroke-dasharray:5 2}
.spiral svg .mark-name{fill:var(--bad);font-weight:600}
.spiral .legend span{display:inline-block;margin-right:.9rem;font-size:.8em;color:var(--soft)}
.spiral table{border-collapse:collapse;font-size:.88em;display:block;overflow-x:auto;max-width:100%}
.spiral td,.spiral th{border-bottom:1px solid var(--line);padding:.25rem .6rem;text-align:left;vertical-align:top}
.spiral td.n,.spiral th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.spiral td.hash{font:12px ui-monospace,monospace}
.spiral table.heat td{text-align:center;border:1px solid var(--paper)}.spiral small{font-size:.85em}
.spiral .bar{display:inline-block;width:7rem;height:.6rem;background:var(--line);border-radius:2px}
.spiral .bar span{display:block;height:100%;background:var(--c0);border-radius:2px;print-color-adjust:exact}
.spiral td{print-color-adjust:exact}
.spiral details{border:1px solid var(--line);border-radius:8px;margin:.4rem 0;padding:.4rem .7rem}
.spiral details details{border:0;padding:0 0 0 .2rem;margin:.2rem 0}
.spiral summary{cursor:pointer;overflow-wrap:anywhere}
.spiral pre{white-space:pre-wrap;overflow-wrap:anywhere;font:13px/1.45 ui-monospace,monospace;margin:.3rem 0;
padding:.4rem;background:var(--card)}
.spiral code{font:13px ui-monospace,monospace;background:var(--card);padding:0 .25rem;overflow-wrap:anywhere}
@media (max-width:600px){.spiral td,.spiral th{padding:.2rem .35rem}.spiral table{font-size:.82em}
.spiral .head{padding:.6rem .6rem}.spiral td:first-child{min-width:6.5rem}.spiral td.n:first-child{min-width:0}
.spiral svg text{font-size:14px}.spiral table.heat td{white-space:normal;padding:.2rem .1rem}
.spiral table.heat th{min-width:0;padding:.2rem .2rem}
.spiral table.stack,.spiral .stack tbody,.spiral .stack tr{display:block}.spiral .stack tr:first-child{display:none}
.spiral .stack tr{border-bottom:1px solid var(--line);padding:.3rem 0}
.spiral .stack td{display:flex;justify-content:space-between;gap:1rem;border:0;padding:.1rem 0;text-align:right}
.spiral .stack td::before{content:attr(data-of);color:var(--soft);text-align:left;white-space:normal}
.spiral .stack td:first-child{font-weight:600;text-align:left}.spiral .stack td:first-child::before{font-weight:400}}
@media print{.spiral{padding:0;font-size:12px}.spiral nav{display:none}
.spiral h2,.spiral h3{break-after:avoid}.spiral details{break-inside:avoid}}
"""


def page(title: str, body: str, *, head: str = "") -> str:
    """Return a whole HTML document around a body that ``framed`` made; ``head`` is more HTML for its head."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta name="color-scheme" content="light dark">{head}'
        f"<title>{html.escape(title)}</title><style>body{{margin:0}}</style></head><body>{body}</body></html>"
    )


def framed(parts: str) -> str:
    """Return the parts with the style sheet: the same for a file and for a Flyte deck."""
    return f'<div class="spiral"><style>{STYLE}</style>{parts}</div>'


def table(
    headings: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    *,
    numbers: Container[int] = (),
    stacked: bool = False,
) -> str:
    """Return a table; cells are HTML already, headings are text, ``numbers`` are the columns set right.

    On a phone a ``stacked`` one shows every row as a block of lines, each with its heading: nothing is out of sight.
    """
    css = [' class="n"' if i in numbers else "" for i in range(len(headings))]
    of = [f' data-of="{html.escape(h)}"' if stacked else "" for h in headings]
    head = "".join(f"<th{c}>{html.escape(h)}</th>" for h, c in zip(headings, css, strict=True))
    lines = ("".join(f"<td{c}{o}>{x}</td>" for x, c, o in zip(row, css, of, strict=True)) for row in rows)
    kind = ' class="stack"' if stacked else ""
    return f"<table{kind}><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def section(title: str, content: str) -> str:
    """Return a section that links can jump to; "" without content."""
    anchor = "-".join(title.lower().split())
    return f'<h2 id="{anchor}">{html.escape(title)}</h2>{content}' if content else ""


def grid(figures: list[str]) -> str:
    """Return the figures side by side where there is room; "" without any."""
    shown = [f for f in figures if f]
    return f'<div class="grid">{"".join(shown)}</div>' if shown else ""
