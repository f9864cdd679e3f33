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
from support.real_series import MAXIMA


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore::statsmodels.tools.sm_exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", MAXIMA)
def test_the_maximum_is_that_of_statsmodels(name):
    load, words, options = MAXIMA[name]
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
