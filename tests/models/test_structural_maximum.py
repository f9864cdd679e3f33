"""The maximum of the exact likelihood, from the start that the catalogue gives, against that of statsmodels."""

import equinox as eqx
import jax
import numpy as np
import pytest
import statsmodels.api as sm
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

from mcfo import Series, initialize
from mcfo.exact import log_evidence
from mcfo.learning.parameters import Modules, split
from support.real_series import AIRLINE, DRIVER_DEATHS


def co2():
    # 1958 has gaps.
    return sm.datasets.co2.load_pandas().data["co2"].resample("MS").mean().to_numpy()


CASES = {
    "nile level": (
        lambda: sm.datasets.nile.load_pandas().data["volume"].to_numpy(float),
        {},
        {"level": "local level"},
    ),
    "nile trend": (
        lambda: sm.datasets.nile.load_pandas().data["volume"].to_numpy(float),
        {"trend": "local"},
        {"level": "local linear trend"},
    ),
    "airline": (
        lambda: AIRLINE,
        {"trend": "local", "season": 12, "transform": "log"},
        {"level": "local linear trend", "seasonal": 12},
    ),
    "driver deaths": (
        lambda: DRIVER_DEATHS,
        {"season": 12, "transform": "log"},
        {"level": "local level", "seasonal": 12},
    ),
    "co2": (co2, {"trend": "local", "season": 12}, {"level": "local linear trend", "seasonal": 12}),
}


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore::statsmodels.tools.sm_exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", CASES)
def test_the_maximum_is_that_of_statsmodels(name):
    load, words, options = CASES[name]
    values = load()
    series = Series.from_values(values)
    start = initialize("structural", series, **words)
    learned, rest = split(Modules(start.model, start.proposal), start.fixed)
    first, unravel = ravel_pytree(learned)
    loss = jax.jit(jax.value_and_grad(lambda flat: -log_evidence(eqx.combine(unravel(flat), rest).model, series)))
    found = minimize(lambda flat: tuple(np.asarray(one) for one in loss(flat)), first, jac=True, method="L-BFGS-B")
    assert found.nfev < 60
    jacobian = -np.nansum(np.log(values)) if "transform" in words else 0.0
    seen = np.log(values) if "transform" in words else values
    theirs = sm.tsa.UnobservedComponents(seen, use_exact_diffuse=True, **options)
    best = max(theirs.fit(disp=0, method=method, maxiter=500).llf for method in ("lbfgs", "powell"))
    assert -found.fun > best + jacobian - 0.01
