"""The expectation suite over the merged numeric columns; a leaf module, imported only when it is needed."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spiral_lib.quality_turns import LOGPROB_TOLERANCE

if TYPE_CHECKING:
    from great_expectations.core.batch_definition import BatchDefinition


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """One expectation's result: the rule it stands for, what was expected of which column, and what was seen."""

    rule: str
    expectation: str
    success: bool
    detail: str


def validate(numbers: Mapping[str, Sequence[float]], *, planned: int) -> list[Outcome]:
    """Return the outcome of every expectation on the columns (equal lengths, one entry per row)."""
    import pandas as pd

    frame = pd.DataFrame({name: pd.Series(list(values), dtype="float64") for name, values in numbers.items()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside the library
        batch = _batches().get_batch({"dataframe": frame})
        results = batch.validate(_suite(planned)).results
    return [_outcome(result) for result in results]


@functools.cache
def _batches() -> BatchDefinition:
    """Return the entry point of an in-memory context, made once per process: importing the library takes seconds."""
    # The library reads this once, on import; a run must not call out.
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    asset = context.data_sources.add_pandas("trajectories").add_dataframe_asset("turns")
    return asset.add_batch_definition_whole_dataframe("all")


def _suite(planned: int) -> Any:
    from great_expectations import ExpectationSuite
    from great_expectations import expectations as e

    def rule(name: str) -> dict[str, Any]:
        return {"meta": {"rule": name}}

    measured = ("return_0", "return_1", "temperature", "lowest_logprob", "highest_logprob")
    pair = {"column_A": "num_response_ids", "column_B": "num_logprobs"}
    return ExpectationSuite(
        name="turns",
        expectations=[
            # Every other expectation holds for no rows at all and for missing values: these come first.
            e.ExpectTableRowCountToBeBetween(min_value=1, **rule("rows")),
            *(e.ExpectColumnValuesToNotBeNull(column=c, **rule("finite")) for c in measured),
            e.ExpectColumnUniqueValueCountToBeBetween(
                column="episode", min_value=planned, max_value=planned, **rule("episode_count")
            ),
            e.ExpectCompoundColumnsToBeUnique(column_list=["episode", "turn"], **rule("duplicate_episode")),
            e.ExpectColumnValuesToBeBetween(column="turn", min_value=-1, **rule("turns")),
            e.ExpectColumnValuesToBeBetween(column="player", min_value=-1, max_value=1, **rule("turns")),
            e.ExpectColumnValuesToBeInSet(column="legal", value_set=[0, 1], **rule("legality")),
            e.ExpectColumnValuesToBeBetween(
                column="temperature", min_value=0, max_value=1e6, strict_min=True, **rule("finite")
            ),
            e.ExpectColumnValuesToBeBetween(column="return_0", min_value=-1, max_value=1, **rule("returns")),
            e.ExpectColumnValuesToBeBetween(column="return_1", min_value=-1, max_value=1, **rule("returns")),
            e.ExpectColumnValuesToBeBetween(column="return_sum", min_value=0, max_value=0, **rule("zero_sum")),
            e.ExpectColumnPairValuesToBeEqual(**pair, **rule("tokens")),
            e.ExpectColumnValuesToBeBetween(column="lowest_logprob", min_value=-1e30, **rule("logprobs")),
            e.ExpectColumnValuesToBeBetween(
                column="highest_logprob", max_value=LOGPROB_TOLERANCE, **rule("logprobs")
            ),
        ],
    )


def _outcome(result: Any) -> Outcome:
    config, seen = result.expectation_config, result.result
    kwargs = config.kwargs
    columns = kwargs.get("column") or " ".join(kwargs.get("column_list") or ()) or kwargs.get("column_A") or "the table"
    found = seen.get("observed_value", f"{seen.get('unexpected_count', 'unknown')} unexpected values")
    error = result.exception_info.get("exception_message")
    return Outcome(
        rule=config.meta["rule"],
        expectation=f"{config.type} on {columns}",
        success=bool(result.success),
        detail=f"error: {error}" if error else str(found),
    )
