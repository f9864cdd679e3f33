"""Circular means and the quantiles around them: of particles, of exact Gaussians, of a pendulum."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import mcfo
from mcfo import MarkovModel
from mcfo.errors import InputError
from mcfo.inference.angles import Angle, Angles, angles_of, find_angles, wrapped
from mcfo.inference.quantiles import Summary
from mcfo.models import LinearGaussian
from mcfo.proposals import Bootstrap
from mcfo.reports.series_plots import _line

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
HEADING = Angle(0, 0.0, 360.0)


def apart(a, b, period=2 * np.pi):
    """The distance of directions."""
    return np.abs((np.asarray(a) - b + period / 2) % period - period / 2)


def test_the_mean_of_particles_lies_among_them():
    values = jnp.array([[350.0, 350.0], [20.0, 20.0], [5.0, 5.0], [jnp.nan, 1.0]])
    log_weights = jnp.log(jnp.array([0.4, 0.2, 0.4, 0.0]))
    levels = jnp.array([0.1, 0.5, 0.9])
    summary = Summary.of(values, log_weights, levels, angles=[HEADING])
    shifted = Summary.of((values + 180) % 360, log_weights, levels, angles=[HEADING])
    mean = np.angle(np.sum(np.exp(1j * np.radians([350, 20, 5])) * [0.4, 0.2, 0.4]), deg=True) % 360
    assert float(summary.mean[0]) == pytest.approx(mean)
    assert apart(shifted.mean[0], mean + 180, 360) < 1e-9
    # The interval is not cut at zero: its ends may lie outside of [0, 360).
    np.testing.assert_allclose(
        np.sort(summary.quantiles[:, 0]) - mean, [350 - mean, 365 - mean, 380 - mean] - 360 * (mean < 180) * np.ones(3)
    )
    assert float(summary.mean[1]) == pytest.approx(146), "the negative control: among none of them"


@pytest.mark.parametrize("scale", [0.3, 1.5, 4.0, 50.0])
def test_a_wrapped_normal_has_its_quantiles(scale):
    """Against 10^5 draws: binomial errors of the share below each quantile."""
    mean = np.array([3.0])
    arrays = {"latent_mean": mean[:, None], "latent_quantiles": np.array([[[-0.4]]]) * scale + 3.0}
    level = 0.3445782583896758  # of -0.4 standard deviations
    result = wrapped(arrays, Angles(latents=(Angle(0, -np.pi, 2 * np.pi),)), (level,))
    center, quantile = result["latent_mean"][0, 0], result["latent_quantiles"][0, 0, 0]
    draws = np.random.default_rng(0).normal(3.0, scale, 100_000)
    beside = (draws - center + np.pi) % (2 * np.pi) - np.pi
    error = np.sqrt(level * (1 - level) / len(draws))
    assert abs(np.mean(beside < quantile - center) - level) < 5 * error
    assert center == pytest.approx(3.0)
    if scale > 2:  # the negative control: the quantile of the line
        assert abs(np.mean(beside < -0.4 * scale) - level) > 5 * error


def test_angles_are_found_by_name_and_by_the_model():
    model = LinearGaussian.scalar(0.9, 1.0)
    series = [mcfo.Series.from_values(np.array([[350.0, -2.0], [10.0, 3.0]]))]
    found = find_angles(model, series, ["heading", "roll"], {"heading": 360.0, "roll": 360.0, "z1": 1.0})
    assert found == Angles((Angle(0, -0.5, 1.0),), (Angle(0, 0.0, 360.0), Angle(1, -180.0, 360.0)))
    with pytest.raises(
        InputError, match=r"no column or state 'headng' that could be an angle\. Did you mean 'heading'"
    ):
        find_angles(model, series, ["heading", "roll"], ["headng"])
    with pytest.raises(InputError, match="Give a positive number"):
        find_angles(model, series, ["heading", "roll"], {"heading": 0.0})


def test_a_line_ends_where_the_angle_goes_around():
    x, y = _line(np.arange(4.0), np.array([340.0, 359.0, 363.0, 20.0]), HEADING)
    np.testing.assert_array_equal(x, [0, 1, 2, 2, 3])
    np.testing.assert_array_equal(y, [340, 359, np.nan, 3, 20])


class Pendulum(MarkovModel):
    """Angle and speed of a pendulum that is pushed at random; what is seen is where its end is."""

    circular_latents = (0,)

    def initial(self, memory, inputs):
        return dist.Normal(jnp.zeros(2), jnp.array([3.0, 1.0])).to_event(1)

    def transition(self, memory, inputs):
        angle, speed = memory
        faster = speed + 0.1 * 10.0 * jnp.sin(angle)
        return dist.Normal(jnp.stack([angle + 0.1 * faster, faster]), jnp.array([0.02, 0.2])).to_event(1)

    def emission(self, memory, latent, inputs):
        return dist.Normal(jnp.stack([jnp.sin(latent[0]), jnp.cos(latent[0])]), 0.2).to_event(1)


class Unaware(Pendulum):
    circular_latents = ()


@pytest.mark.ci
def test_a_pendulum_that_hangs_is_found_below():
    """It hangs at π, which is -π: half of the particles are on either side."""
    noise = np.random.default_rng(0).normal(size=(20, 2))
    values = np.array([0.0, -1.0]) + 0.2 * noise
    errors = {}
    for kind in (Pendulum, Unaware):
        found = mcfo.filter(kind(), Bootstrap(), values, particles=400)
        errors[kind] = apart(found["latent_mean"].values[0, :, 0], np.pi)
    assert np.median(errors[Pendulum]) < 0.2
    assert np.median(errors[Unaware]) > 0.5, "the negative control"
    smoothed = mcfo.smooth(Pendulum(), Bootstrap(), values, particles=400, paths=100)
    ahead = mcfo.forecast(Pendulum(), Bootstrap(), values, 3, particles=400, draws=100)
    for one in (smoothed, ahead):
        means, quantiles = one["latent_mean"].values[0, :, 0], one["latent_quantiles"].values[0, :, :, 0]
        assert (np.abs(means) <= np.pi + 1e-6).all()
        assert (np.abs(quantiles - means[:, None]) <= np.pi + 1e-6).all()
        assert angles_of(one, "latent") == {0: Angle(0, -np.pi, 2 * np.pi)}
    inside = (quantiles[:, 0] <= means) & (means <= quantiles[:, -1])
    assert inside.all()


@pytest.mark.ci
def test_a_heading_in_degrees_is_exact(tmp_path):
    from mcfo.reports.series_plots import draw_states

    model = LinearGaussian.scalar(1.0, 1.0, transition_variance=4.0, emission_variance=9.0, initial_mean=350.0)
    turned = np.array([352.0, 357.0, 3.0, np.nan, 9.0])
    unrolled = np.where(turned < 180, turned + 360, turned)
    found = mcfo.smooth(model, Bootstrap(), unrolled, circular={"x1": 360})
    plain = mcfo.smooth(model, Bootstrap(), unrolled)
    for kind in ("observation", "latent"):
        assert apart(found[f"{kind}_mean"], plain[f"{kind}_mean"], 360).max() < 1e-9
    means, filled = found["observation_mean"].values[0, :, 0], found["filled"].values[0, :, 0]
    assert ((means >= 0) & (means < 360)).all()
    assert filled[3] == means[3]
    widths = [np.diff(one["observation_quantiles"].values[0, :, :, 0]) for one in (found, plain)]
    np.testing.assert_allclose(*widths, atol=1e-9)
    assert draw_states(tmp_path / "heading.png", found, None).stat().st_size > 10_000
