"""Posteriors against grids of the exact likelihood; what is refused; resuming; averages over the parameters."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import mcfo
from mcfo import Series, exact, sample_posterior, simulate
from mcfo.data.batching import as_buckets
from mcfo.errors import InputError, OtherRunError
from mcfo.learning.coordinates import Coordinates
from mcfo.learning.priors import Priors
from mcfo.models import GaussianStructural, LinearGaussian, Trend
from mcfo.posterior import sampling
from mcfo.posterior.averaging import evaluate_rolling_over, forecast_over, smooth_over
from mcfo.posterior.result import Posterior, load_posterior
from mcfo.posterior.target import Target
from mcfo.proposals import LocallyOptimal
from support.coverage import INITIAL, MATRICES

FIXED = (*INITIAL, *MATRICES)
PRIORS = {"transition_noise": "half-normal:1", "emission_noise": "half-normal:1"}
STEPS = 25


def level():
    """A local level with unknown noises, its optimal proposal, and a short series."""
    model = LinearGaussian.scalar(1.0, 1.0, transition_variance=0.5, emission_variance=0.8, initial_mean=0.0)
    values = simulate(model, STEPS, key=jax.random.key(3))[1]
    return (model, LocallyOptimal(model)), [Series.from_values(np.asarray(values))]


def grid_cdfs(model, series, size=160):
    """The marginal posterior distribution functions of both standard deviations, by summing over a grid."""
    grid = np.exp(np.linspace(np.log(1e-3), np.log(5.0), size))

    @jax.jit
    def likelihood(transition, emission):
        changed = eqx.tree_at(
            lambda m: (m.transition_noise.log_diagonal, m.emission_noise.log_diagonal),
            model,
            (jnp.log(transition)[None], jnp.log(emission)[None]),
        )
        return exact.log_evidence(changed, series)

    rows = jax.vmap(jax.vmap(likelihood, (None, 0)), (0, None))(jnp.asarray(grid), jnp.asarray(grid))
    prior = stats.halfnorm.logpdf(grid) + np.log(grid)  # of the logarithm, in which the grid is even
    log_density = np.asarray(rows) + prior[:, None] + prior[None]
    density = np.exp(log_density - log_density.max())
    marginals = [density.sum(axis=axis) / density.sum() for axis in (1, 0)]
    # The mass of a cell lies half below its point.
    return grid, [np.cumsum(marginal) - marginal / 2 for marginal in marginals]


def distances(posterior, grid, cdfs):
    """sup |F̂ - F| of each parameter times the square root of its effective sample size, and that size."""
    values, rows = posterior.values(), posterior.summary()
    found = {}
    for index, (row, cdf) in enumerate(zip(rows, cdfs, strict=True)):
        empirical = np.searchsorted(np.sort(values[:, :, index].ravel()), grid, side="right") / values[:, :, 0].size
        found[row.name] = (float(np.max(np.abs(empirical - cdf)) * np.sqrt(row.ess)), row.ess)
    return found


class Forgetful(Target):
    """A target without the Jacobian: the negative control."""

    def log_prior(self, vector):
        return self.priors.log_density(self.coordinates.model(vector))


@pytest.mark.ci
def test_the_exact_posterior_is_that_of_a_grid(monkeypatch):
    learned, data = level()
    grid, cdfs = grid_cdfs(learned[0], data[0])
    numbers = {"priors": PRIORS, "fixed": FIXED, "chains": 40, "warmup": 300, "draws": 1200}
    posterior = sample_posterior(learned, data, **numbers)
    assert [row.name for row in posterior.summary()] == [
        "transition_noise.standard_deviation",
        "emission_noise.standard_deviation",
    ]
    for distance, ess in distances(posterior, grid, cdfs).values():
        assert ess >= 2000
        assert distance < 1.95  # Kolmogorov: a right sampler fails once in a thousand
    monkeypatch.setattr(sampling, "Target", Forgetful)
    wrong = sample_posterior(learned, data, **numbers, seed=1)
    assert max(distance for distance, _ in distances(wrong, grid, cdfs).values()) > 1.95


@pytest.mark.slow
def test_the_posterior_by_particles_is_that_of_a_grid():
    learned, data = level()
    grid, cdfs = grid_cdfs(learned[0], data[0])
    posterior = sample_posterior(
        learned, data, priors=PRIORS, fixed=FIXED, chains=60, warmup=400, draws=1500, method="particles"
    )
    assert 0.3 < posterior.about["log_evidence_variance"] < 3
    for distance, ess in distances(posterior, grid, cdfs).values():
        assert ess >= 2000
        assert distance < 1.95


@pytest.mark.ci
@pytest.mark.parametrize("method", ["exact", "particles"])
def test_resuming_is_bit_identical(method, tmp_path):
    learned, data = level()
    numbers = {"priors": PRIORS, "fixed": FIXED, "chains": 3, "warmup": 100, "draws": 100, "checkpoint_seconds": 0.0}
    numbers |= {"particles": 20} if method == "particles" else {}
    whole = sample_posterior(learned, data, **numbers, out=tmp_path / "whole")

    def stop(done, total, text):
        if done >= 120:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sample_posterior(learned, data, **numbers, out=tmp_path / "cut", progress=stop)
    assert not (tmp_path / "cut" / "draws.nc").exists()
    with pytest.raises(OtherRunError, match="seed was 0 and is 1"):
        sample_posterior(learned, data, **numbers, out=tmp_path / "cut", resume=True, seed=1)
    resumed = sample_posterior(learned, data, **numbers, out=tmp_path / "cut", resume=True)
    np.testing.assert_array_equal(resumed.points, whole.points)
    np.testing.assert_array_equal(resumed.log_densities, whole.log_densities)
    other = sample_posterior(learned, data, **numbers, seed=1)
    assert not np.array_equal(other.points, whole.points)
    with pytest.raises(InputError, match="exists already"):
        sample_posterior(learned, data, **numbers, out=tmp_path / "cut")


BAD_PRIORS = {
    "unknown parameter": ({"emision_noise": "half-normal:1"}, "Did you mean 'emission_noise.standard_deviation'"),
    "unknown family": ({"emission_noise": "half-norml:1"}, "Did you mean 'half-normal'"),
    "numbers": ({"emission_noise": "half-normal:1,2"}, "not of the form half-normal:SCALE"),
    "impossible number": ({"emission_noise": "half-normal:-1"}, "not of the form half-normal:SCALE"),
    "outside the support": ({"emission_noise": "uniform:-3,-1"}, "lies outside the range of emission_noise"),
    "no density here": ({"emission_noise": "uniform:20,30"}, "gives no density to the present value"),
    "fixed": ({"transition_matrix": "normal:0,1"}, "no learned parameter 'transition_matrix'"),
    "twice": ({"emission_noise": "half-normal:1", "emission_noise.standard_deviation": "gamma:2,1"}, "two priors"),
    "entry": ({"emission_noise[3]": "half-normal:1"}, "no learned entry"),
    "object": ({"emission_noise": 3.0}, "Give a text such as"),
}


@pytest.mark.parametrize("name", BAD_PRIORS)
def test_bad_priors_are_refused(name):
    (model, _), _ = level()
    wanted, message = BAD_PRIORS[name]
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        Priors.build(wanted, Coordinates.build(model, FIXED))


def test_one_chain_is_refused():
    learned, data = level()
    with pytest.raises(InputError, match="R-hat compares chains"):
        sample_posterior(learned, data, chains=1)


def test_priors_have_the_densities_of_scipy():
    (model, _), _ = level()
    coordinates = Coordinates.build(model, FIXED)
    wanted = {"transition_noise": "half-normal:2", "emission_noise": dist.Gamma(2.0, 3.0)}
    found = Priors.build(wanted, coordinates).log_density(model)
    scales = np.sqrt(0.5), np.sqrt(0.8)
    expected = stats.halfnorm.logpdf(scales[0], scale=2) + stats.gamma.logpdf(scales[1], 2, scale=1 / 3)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    # σ = exp θ, so that dσ/dθ = σ.
    np.testing.assert_allclose(coordinates.log_jacobian(coordinates.vector()), np.log(scales).sum(), rtol=1e-9)


@pytest.mark.ci
def test_the_jacobian_of_a_full_covariance():
    model = LinearGaussian(
        initial_mean=[0.0, 0.0],
        initial_noise=[1.0, 1.0],
        transition_matrix=np.eye(2),
        transition_noise=[[0.5, 0.2], [0.2, 0.4]],
        emission_matrix=np.eye(2),
        emission_noise=[1.0, 1.0],
    )
    coordinates = Coordinates.build(model, (*FIXED, "model.emission_noise"))
    assert [entry.label.rpartition(".")[2] for entry in coordinates.entries] == [
        *("standard_deviation[0]", "standard_deviation[1]", "correlation[1, 0]"),
    ]
    slopes = jax.jacrev(coordinates.values)(coordinates.vector())
    expected = np.linalg.slogdet(np.asarray(slopes))[1]
    np.testing.assert_allclose(coordinates.log_jacobian(coordinates.vector()), expected, rtol=1e-9)


def drawn(model, proposal, points):
    """A posterior of given draws, (chains, draws, size)."""
    chains, draws = points.shape[:2]
    flat = np.zeros((chains, draws))
    about = {"exact": True, "particles": None, "warmup": 0}
    return Posterior(Coordinates.build(model, FIXED), proposal, points, flat, flat, np.ones(chains), about)


def test_a_posterior_of_another_model_is_refused(tmp_path):
    (model, proposal), _ = level()
    posterior = drawn(model, proposal, np.random.default_rng(0).normal(size=(2, 8, 2)))
    posterior.save(tmp_path / "draws.nc")
    loaded = load_posterior(tmp_path / "draws.nc", model, proposal, fixed=FIXED)
    np.testing.assert_array_equal(loaded.points, posterior.points)
    with pytest.raises(InputError, match="posterior of another model: its learned numbers"):
        load_posterior(tmp_path / "draws.nc", model, proposal, fixed=INITIAL)
    other = GaussianStructural(trend=Trend(level_scale=1.0))
    with pytest.raises(InputError, match="posterior of another model"):
        load_posterior(tmp_path / "draws.nc", other, proposal)
    moved = eqx.tree_at(lambda m: m.initial_mean, model, jnp.ones(1))
    with pytest.raises(InputError, match="fixed values"):
        load_posterior(tmp_path / "draws.nc", moved, proposal, fixed=FIXED)
    (tmp_path / "no.nc").write_text("nothing")
    with pytest.raises(InputError, match="is no posterior of mcfo"):
        load_posterior(tmp_path / "no.nc", model, proposal)
    with pytest.raises(InputError, match="There is no file"):
        load_posterior(tmp_path / "absent.nc", model, proposal)


@pytest.mark.ci
def test_averages_over_one_draw_are_those_of_its_model():
    (model, proposal), data = level()
    one = np.asarray(Coordinates.build(model, FIXED).vector())
    posterior = drawn(model, proposal, np.broadcast_to(one, (2, 3, 2)).copy())
    ours = forecast_over(posterior, data, 2, models=2, draws=4000)
    theirs = mcfo.forecast(model, proposal, data, 2, draws=2)
    np.testing.assert_allclose(ours["observation_mean"], theirs["observation_mean"], rtol=1e-6)
    np.testing.assert_allclose(ours["observation_quantiles"], theirs["observation_quantiles"], atol=0.15)
    smoothed = smooth_over(posterior, data, models=2, paths=200, draws=3)
    np.testing.assert_allclose(smoothed["latent_mean"], mcfo.smooth(model, proposal, data)["latent_mean"], rtol=1e-6)
    assert smoothed["latent_draws"].sizes["particle"] == 3
    scored = evaluate_rolling_over(posterior, data, models=2, horizon=2, first=5)
    plain = mcfo.evaluate_rolling(model, proposal, data, horizon=2, first=5)
    for own, expected in zip(scored.scores, plain.scores, strict=True):
        np.testing.assert_allclose(own.log_score, expected.log_score, rtol=1e-9)
        np.testing.assert_allclose(own.crps, expected.crps, rtol=0.01)


def test_averages_mix_different_parameters():
    (model, proposal), data = level()
    one = np.asarray(Coordinates.build(model, FIXED).vector())
    narrow, wide = one - 1.0, one + 1.0
    posterior = drawn(model, proposal, np.stack([narrow, wide])[:, None])
    ours = forecast_over(posterior, data, 1, models=2, draws=2000)
    parts = [mcfo.forecast(own, q, data, 1, draws=2) for own, q in posterior.models(2)]
    mean = np.mean([part["observation_mean"].values for part in parts], axis=0)
    np.testing.assert_allclose(ours["observation_mean"], mean, rtol=1e-6)
    ends = [float(part["observation_quantiles"].values[0, 0, -1, 0]) for part in parts]
    assert min(ends) < float(ours["observation_quantiles"].values[0, 0, -1, 0]) < max(ends)


def test_starts_where_the_density_is_finite():
    (model, proposal), data = level()
    coordinates = Coordinates.build(model, FIXED)
    priors = Priors.build({"emission_noise": "uniform:0.8,1.0"}, coordinates)
    target = Target(coordinates, priors, proposal, as_buckets(data), None)
    points, densities, _ = sampling._starting_points(
        target, np.asarray(coordinates.vector()), np.eye(2), 4, jax.random.key(0)
    )
    assert np.isfinite(densities).all()
    scales = np.exp(points[:, 1])
    assert ((scales > 0.8) & (scales < 1.0)).all()
