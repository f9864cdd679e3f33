"""What the examples with real series must reach. The numbers that came out are in docs/forecasting.md."""

import runpy
from pathlib import Path

import jax
import numpy as np
import pytest
import statsmodels.api as sm

import mcfo

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.slow
def test_the_nile_is_learned_as_well_as_by_the_exact_likelihood():
    nile = runpy.run_path(str(EXAMPLES / "nile.py"))
    values = nile["flow"]()
    series = mcfo.Series.from_values(values)
    exact, model = nile["exact_maximum"](values), nile["learn"](values).model
    found = {name: float(value) for name, value in nile["variances"](model).items()}
    log_likelihood = float(mcfo.kalman_filter(model, series).log_evidence)
    at_exact = mcfo.kalman_filter(nile["local_level"](exact.noise, exact.level), series)
    # The same function of the same parameters, by two filters that share no code.
    assert float(at_exact.log_evidence) == pytest.approx(exact.log_likelihood, abs=1e-6)
    assert exact.log_likelihood - 0.1 < log_likelihood < exact.log_likelihood + 1e-6
    assert found["noise"] == pytest.approx(exact.noise, rel=0.25)
    assert found["level"] == pytest.approx(exact.level, rel=0.25)
    # Filtered and smoothed means against those of statsmodels with the same parameters.
    trusted = sm.tsa.UnobservedComponents(values, "local level")
    trusted.ssm.initialize_known(np.array([nile["INITIAL"][0]]), np.array([[nile["INITIAL"][1]]]))
    trusted.ssm.loglikelihood_burn = 0
    truth = trusted.smooth([found["noise"], found["level"]])
    trace = mcfo.SMC(2000)(model, mcfo.proposals.LocallyOptimal(model), series, key=jax.random.key(1), history=True)
    paths = mcfo.smc.backward_simulation(model, trace, series, 1000, key=jax.random.key(2))
    allowed = 0.02 * np.ptp(values)
    filtered, smoothed = trace.history.particles.mean()[:, 0], paths.mean()[:, 0]
    assert np.abs(filtered - truth.filtered_state[0]).max() < allowed
    assert np.abs(smoothed - truth.smoothed_state[0]).max() < allowed
    # Nothing learned fails the same test.
    begun = nile["local_level"](5000.0, 10000.0)
    assert float(mcfo.kalman_filter(begun, series).log_evidence) < exact.log_likelihood - 0.1


@pytest.mark.slow
def test_volatility_is_forecast_and_constant_variance_is_beaten():
    returns = runpy.run_path(str(EXAMPLES / "returns.py"))
    values, _ = returns["returns"]()
    split = len(values) - returns["HELD_OUT"]
    fitted = returns["learn"](values[:split])
    scores = mcfo.evaluate_rolling(
        fitted.model,
        fitted.proposal,
        mcfo.Series.from_values(values),
        first=split + 1,
        key=jax.random.key(0),
    ).scores[0]
    log_score, _, coverage = returns["constant_variance"](values, split)
    assert scores.forecasts >= 1000
    assert scores.log_score > log_score
    assert 0.87 <= scores.coverage_90 <= 0.93
    assert not 0.87 <= coverage <= 0.93  # a constant variance fails the same test


@pytest.mark.slow
def test_the_regimes_of_growth_have_the_likelihood_of_statsmodels():
    regimes = runpy.run_path(str(EXAMPLES / "regimes.py"))
    values, years = regimes["growth"]()
    fitted = mcfo.fit("hmm", values, states=2)
    found = fitted.evaluation.log_evidence
    assert found == pytest.approx(regimes["statsmodels_likelihood"](values, fitted.model), abs=1e-5)
    # The Great Moderation, from 1984 on, was calm; the years before it were not.
    calm = fitted.smooth(values)["latent_mean"].sel(latent="regime 1")[0].values
    assert calm[(years > 1985) & (years < 2007)].mean() > 0.8
    assert calm[years < 1983].mean() < 0.5
    one = mcfo.fit("hmm", values, states=1).evaluation.log_evidence
    assert found > one + 10


@pytest.mark.ci
def test_the_seat_belt_law_has_the_effect_that_harvey_and_durbin_found():
    deaths = runpy.run_path(str(EXAMPLES / "driver_deaths.py"))
    frame = deaths["drivers"]()
    found = deaths["effect"](deaths["learn"](frame), frame)
    assert found.low < -23.8 < found.high < -10
    # A law of 1976, which there was not, has no effect.
    never = frame[frame.index < deaths["LAW"]].assign(law=lambda one: (one.index >= "1976-01").astype(float))
    placebo = deaths["effect"](deaths["learn"](never), never)
    assert placebo.low < 0 < placebo.high


@pytest.mark.ci
def test_two_years_of_passengers_are_forecast_better_than_by_the_year_before():
    airline = runpy.run_path(str(EXAMPLES / "airline.py"))
    values = airline["passengers"]()
    known, held_out = values[: -airline["HELD_OUT"]], values[-airline["HELD_OUT"] :].to_numpy()
    forecast = airline["learn"](known).forecast(known, len(held_out))
    error = np.abs(forecast["observation_quantiles"].sel(quantile=0.5)[0, :, 0].values - held_out).mean()
    assert error < 0.5 * np.abs(np.tile(known.to_numpy()[-12:], 2) - held_out).mean()
