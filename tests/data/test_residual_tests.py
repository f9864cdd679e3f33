"""Tests of residuals: the numbers of statsmodels and SciPy, and what they say of noise that is none."""

import numpy as np
import pytest
from scipy.stats import jarque_bera
from statsmodels.stats.diagnostic import acorr_ljungbox
from statsmodels.tsa.stattools import breakvar_heteroskedasticity_test

from mcfo.data.residual_tests import residual_tests


@pytest.mark.parametrize(("season", "lags"), [(None, 10), (12, 24)])
def test_the_numbers_are_those_of_statsmodels(season, lags):
    residuals = np.random.default_rng(0).standard_t(5, size=131)
    found = residual_tests([np.concatenate([np.full(13, np.nan), residuals])], season=season)
    assert (found.size, found.lags) == (131, lags)
    theirs = acorr_ljungbox(residuals, lags=[lags])
    assert found.serial == pytest.approx((theirs["lb_stat"].iloc[0], theirs["lb_pvalue"].iloc[0]), rel=1e-9)
    break_ = breakvar_heteroskedasticity_test(residuals, subset_length=round(131 / 3))
    assert found.heteroscedasticity == pytest.approx((break_.statistic, break_.pvalue), rel=1e-9)
    assert found.normality == pytest.approx(tuple(jarque_bera(residuals)), rel=1e-9)


def test_gaps_are_left_out_as_statsmodels_leaves_them_out():
    residuals = np.random.default_rng(1).normal(size=90)
    residuals[[3, 5, 80]] = np.nan
    found = residual_tests([residuals]).heteroscedasticity
    theirs = breakvar_heteroskedasticity_test(residuals, subset_length=30)
    assert found == pytest.approx((theirs.statistic, theirs.pvalue), rel=1e-9)


def test_white_noise_passes_and_each_fault_is_found_by_its_own_test():
    rng = np.random.default_rng(2)
    noise = rng.normal(size=600)
    p_values = {
        "noise": residual_tests([noise]),
        "memory": residual_tests([np.convolve(noise, [1.0, 0.8], mode="valid")]),
        "growth": residual_tests([noise * np.linspace(0.5, 2, 600)]),
        "tails": residual_tests([rng.standard_t(2.5, size=600)]),
    }
    serial, variance, normal = (
        {name: getattr(one, test).p_value for name, one in p_values.items()}
        for test in ("serial", "heteroscedasticity", "normality")
    )
    assert min(serial["noise"], variance["noise"], normal["noise"]) > 0.01
    assert max(serial["memory"], variance["growth"], normal["tails"]) < 1e-6


def test_too_short_or_constant_series_have_no_tests():
    for residuals in ([np.zeros(30)], [np.array([0.1, -0.2])], [np.full(5, np.nan)]):
        found = residual_tests(residuals)
        assert np.isnan([found.serial.p_value, found.normality.p_value]).all()
