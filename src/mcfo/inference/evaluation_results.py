"""The result of an evaluation."""

from __future__ import annotations

import math
from typing import Any, NamedTuple


class Evaluation(NamedTuple):
    """The evaluation of a data set.

    - `log_evidence`: Σ log p(x_1:T) over the series, exact or estimated, and `nll_per_step` minus that over the steps.
    - `steps`: the number of steps at which something was observed. Every "per step" is one for each of them.
    - `ess`, `ess_min`: the mean effective sample size over all steps, and its minimum; None without particles.
    - `prediction_rmse`: root mean square of x_t - E[x_t | x_1:t-1] over the observed values; None if the emission has
      no mean, a filter collapsed, or it was not requested.
    - `collapsed`: the number of series whose evidence is not finite; `log_evidence` is then -inf or NaN.
    - `exact_nll_per_step`: the exact value beside an estimate, for a model whose likelihood is known.
    - `exact`: whether the numbers are exact.
    - `log_evidence_error`: the standard error of an estimated `log_evidence`, from repeated filters; None without.
    """

    log_evidence: float
    nll_per_step: float
    ess: float | None
    ess_min: float | None
    particles: int | None
    prediction_rmse: float | None
    series: int
    steps: int
    collapsed: int
    exact_nll_per_step: float | None
    exact: bool = False
    log_evidence_error: float | None = None

    def moved(self, log_jacobian: float, exact_nll_per_step: float | None) -> Evaluation:
        """Return the evaluation of the same data in another unit, of which the exact value is known or not."""
        log_evidence = self.log_evidence + log_jacobian
        return self._replace(
            log_evidence=log_evidence,
            nll_per_step=-log_evidence / self.steps,
            exact_nll_per_step=exact_nll_per_step,
        )

    def as_data(self) -> dict[str, Any]:
        """Return data for JSON, with None for numbers that are not finite."""
        values = self._asdict()
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in values.items()
        }
