import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spiral_lib.errors import LineageError
from spiral_lib.ledger import Champion, DecisionRecord, EvaluationRecord, Ledger, PoolEntry
from spiral_lib.types import Decision

finite = st.floats(allow_nan=False, allow_infinity=True)
metrics = st.dictionaries(st.text(max_size=8), finite, max_size=4)

ledgers = st.builds(
    Ledger,
    iteration=st.integers(0, 1000),
    baselines=metrics,
    pool=st.lists(
        st.builds(PoolEntry, id=st.text(), iteration=st.integers(0), digest=st.text(), rating=st.none() | finite),
        max_size=3,
    ).map(tuple),
    champion=st.none() | st.builds(Champion, iteration=st.integers(0), checkpoint=st.text(), metrics=metrics),
    evaluations=st.lists(st.builds(EvaluationRecord, iteration=st.integers(0), metrics=metrics), max_size=3).map(tuple),
    decisions=st.lists(
        st.builds(
            DecisionRecord,
            iteration=st.integers(0),
            decision=st.sampled_from(Decision),
            reasons=st.lists(st.text(), max_size=2).map(tuple),
            alarms=st.lists(st.text(), max_size=2).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
    lr_scale=finite,
    holds=st.integers(0, 9),
    grad_norms=st.lists(finite, max_size=4).map(tuple),
    notes=st.dictionaries(st.text(), st.integers() | finite | st.text() | st.booleans(), max_size=4),
)


@given(ledgers)
def test_a_ledger_survives_json_exactly(ledger: Ledger) -> None:
    again = Ledger.from_json(ledger.to_json())
    assert again == ledger
    assert again.to_json() == ledger.to_json()


def test_integers_above_2_to_the_53_stay_exact_integers() -> None:
    notes = Ledger.from_json(Ledger(notes={"seed": 2**53 + 1, "flag": True, "scale": 1.0}).to_json()).notes
    assert notes["seed"] == 2**53 + 1
    assert [type(v) for v in (notes["seed"], notes["flag"], notes["scale"])] == [int, bool, float]


def test_a_missing_measurement_stays_nan_in_strict_json() -> None:
    text = Ledger(evaluations=(EvaluationRecord(iteration=1, metrics={"eval/x": math.nan}),)).to_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert math.isnan(Ledger.from_json(text).evaluations[0].metrics["eval/x"])


def test_decisions_come_back_as_decisions() -> None:
    text = Ledger(decisions=(DecisionRecord(iteration=1, decision=Decision.HOLD),)).to_json()
    assert Ledger.from_json(text).decisions[0].decision is Decision.HOLD


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "version 99"),
        ({"unheard": 1}, "unheard"),
        ({"pool": [{"id": "a"}]}, "damaged"),
        ({"decisions": [{"iteration": 1, "decision": "maybe", "reasons": [], "alarms": []}]}, "maybe"),
    ],
)
def test_a_ledger_of_another_shape_is_refused(change: dict[str, object], message: str) -> None:
    content = json.loads(Ledger().to_json()) | change
    with pytest.raises(LineageError, match=message):
        Ledger.from_json(json.dumps(content))


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "7"])
def test_text_that_is_no_ledger_is_refused(text: str) -> None:
    with pytest.raises(LineageError, match="no ledger"):
        Ledger.from_json(text)
