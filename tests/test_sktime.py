"""The forecaster of sktime: its contract, and that its answers are those of the model."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import mcfo

pytest.importorskip("sktime", reason="sktime is the extra mcfo[sktime].")
pytestmark = pytest.mark.filterwarnings("ignore")  # of sktime about its own future


def monthly(steps=24, *, seed=0, name="sales"):
    values = 10 + np.cumsum(np.random.default_rng(seed).normal(size=steps))
    return pd.Series(values, index=pd.period_range("2020-01", periods=steps, freq="M"), name=name)


@pytest.mark.ci
def test_fit_predict_update_and_panels():
    from mcfo.sktime import McfoForecaster

    y = monthly()
    forecaster = McfoForecaster("local-level").fit(y.iloc[:20], fh=[1, 3])
    fitted = mcfo.fit("local-level", y.iloc[:20].to_numpy(), seeds=(0,))
    ours = fitted.predict(3, levels=(0.05, 0.95))
    assert forecaster.predict().index.equals(pd.PeriodIndex(["2021-09", "2021-11"], freq="M"))
    np.testing.assert_allclose(forecaster.predict(), ours["mean"].iloc[[0, 2]], rtol=1e-6)
    interval = forecaster.predict_interval(coverage=0.9)
    np.testing.assert_allclose(interval.to_numpy(), ours[["q05", "q95"]].iloc[[0, 2]], rtol=1e-6)
    quantiles = forecaster.predict_quantiles(alpha=[0.9, 0.1])
    assert (quantiles["sales"][0.9] > quantiles["sales"][0.1]).all()
    within = forecaster.predict(fh=[-2, 0])
    expected = fitted.filter()["observation_mean"].values[0, [17, 19], 0]
    np.testing.assert_allclose(within, expected, rtol=1e-6)
    # The parameters stay, but the filter goes on over the new rows.
    forecaster.update(y.iloc[20:], update_params=False)
    assert forecaster.cutoff[0] == pd.Period("2021-12", "M")
    later = fitted.predict(1, data=mcfo.Series.from_values(y.to_numpy()))
    np.testing.assert_allclose(forecaster.predict(fh=[1]), later["mean"], rtol=1e-6)
    assert forecaster.get_fitted_params()["log_likelihood"] == pytest.approx(fitted.summary().log_likelihood, rel=1e-9)

    panel = pd.concat({name: monthly(20, seed=seed).to_frame() for seed, name in enumerate("ab")}, names=["shop"])
    several = McfoForecaster("local-level").fit(panel, fh=[1])
    one = McfoForecaster("local-level").fit(monthly(20, seed=1), fh=[1])
    np.testing.assert_allclose(several.predict().loc["b", "sales"], one.predict(), rtol=1e-6)


@pytest.mark.slow
def test_the_contract_of_sktime():
    from sktime.utils import check_estimator

    from mcfo.sktime import McfoForecaster

    check_estimator(McfoForecaster, raise_exceptions=True, verbose=False)


def test_without_sktime_one_message_says_what_to_install():
    code = (
        "import sys; sys.modules['sktime'] = None\ntry:\n    import mcfo.sktime\nexcept ImportError as e:\n    print(e)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pip install 'mcfo[sktime]'" in said
