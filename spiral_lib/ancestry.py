"""What an artifact comes from: the step records behind it, back to the cold start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spiral_lib.lineage import StepRecord


def ancestors(records: Sequence[StepRecord], hashes: Iterable[str]) -> list[StepRecord]:
    """Return the records of all steps that the artifacts with these hashes depend on, in the order of the run.

    Where steps made equal bytes, the earliest counts.
    """
    makers: dict[str, StepRecord] = {}
    for record in sorted(records, key=lambda r: r.order):
        for artifact in record.outputs.values():
            makers.setdefault(artifact.sha256, record)
    found: dict[tuple[int, str], StepRecord] = {}
    open_hashes = list(hashes)
    while open_hashes:
        maker = makers.get(open_hashes.pop())
        if maker is None or (maker.order, maker.step) in found:
            continue
        found[maker.order, maker.step] = maker
        open_hashes += [artifact.sha256 for artifact in maker.inputs.values()]
    return [found[key] for key in sorted(found, key=lambda k: (k[0], found[k].start, k[1]))]
