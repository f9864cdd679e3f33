"""What must hold exactly: padding, batching, masks, seeds, steps against runs, one compilation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from mcfo import PIMH, SMC, MarkovModel, Series, kalman_filter, simulate, stack
from mcfo.models import PoissonCounts, StochasticVolatility
from mcfo.proposals import Bootstrap
from mcfo.resampling import Always, ESSBelow, Never
from mcfo.smc import frame, frame_at, frames
from support.memory import Remembering
from support.problems import MODELS, PROPOSALS

CRITERIA = {"always": Always(), "ess": ESSBelow(0.5), "never": Never()}
ZOO = {
    "scalar": lambda: (MODELS["scalar"](), PROPOSALS["affine"](MODELS["scalar"]())),
    "vector": lambda: (MODELS["vector"](), PROPOSALS["locally-optimal"](MODELS["vector"]())),
    "volatility": lambda: (StochasticVolatility(level=[0.1, -0.2]), Bootstrap()),
    "counts": lambda: (PoissonCounts(level=1.0), Bootstrap()),
    "memory": lambda: (Remembering(), Bootstrap()),
}
QUICK = ("scalar", "memory")  # what differs in kind; the rest differs in shapes and densities alone


def cases(*names):
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names]


EACH = [
    ("scalar", "ess"),
    ("memory", "ess"),
    *(pytest.param("scalar", name, marks=pytest.mark.slow) for name in ("always", "never")),
    pytest.param("vector", "ess", marks=pytest.mark.slow),
    pytest.param("volatility", "ess", marks=pytest.mark.slow),
    pytest.param("counts", "ess", marks=pytest.mark.slow),
]


def make_series(model, steps, *, seed=0, gaps=False, series_id=0):
    _, values = simulate(model, 50, key=jax.random.key(seed))  # one length, so that one program serves
    values = np.array(values, float)[:steps]
    if gaps:
        values[2] = np.nan
        values[4, -1] = np.nan
    return Series.from_values(values, series_id=series_id)


def assert_same(one, other, rtol=1e-10):
    np.testing.assert_allclose(one, other, rtol=rtol)


@pytest.mark.ci
@pytest.mark.parametrize(("case", "criterion"), EACH)
def test_padding_and_batching_change_nothing(case, criterion):
    model, proposal = ZOO[case]()
    sampler = SMC(30, criterion=CRITERIA[criterion])
    key = jax.random.key(7)
    series_list = [make_series(model, steps, seed=steps, gaps=steps > 6, series_id=steps) for steps in (9, 5, 7)]
    alone = [sampler(model, proposal, series, key=key) for series in series_list[:2]]
    padded = sampler(model, proposal, series_list[0].pad(13), key=key)
    assert_same(padded.log_evidence, alone[0].log_evidence)
    assert_same(padded.record.ess[:9], alone[0].record.ess)
    assert not padded.record.resampled[9:].any()
    run = eqx.filter_jit(eqx.filter_vmap(lambda series: sampler(model, proposal, series, key=key)))
    together = run(stack(series_list)).log_evidence
    assert_same(together[:2], [trace.log_evidence for trace in alone])
    assert_same(run(stack(series_list[::-1])).log_evidence[::-1], together)


@pytest.mark.parametrize("case", cases(*ZOO))
def test_a_mask_that_hides_nothing_changes_nothing(case):
    model, proposal = ZOO[case]()
    series = make_series(model, 6)
    masked = eqx.tree_at(
        lambda s: s.observed,
        series,
        jnp.ones(series.observations.shape, bool),
        is_leaf=lambda x: x is None,
    )
    sampler = SMC(30)
    key = jax.random.key(0)
    assert_same(
        sampler(model, proposal, masked, key=key).log_evidence,
        sampler(model, proposal, series, key=key).log_evidence,
    )


class Durations(MarkovModel):
    """Positive observations: zero, NaN and infinity are all outside of the emission's support."""

    level: jax.Array

    def initial(self, memory, inputs):
        return dist.Normal(self.level, 1.0).to_event(1)

    def transition(self, memory, inputs):
        return dist.Normal(0.8 * memory, 0.5).to_event(1)

    def emission(self, memory, latent, inputs):
        return dist.LogNormal(latent, 0.7).to_event(1)


@pytest.mark.parametrize("case", [*cases(*ZOO), "durations"])
def test_what_is_masked_or_padded_reaches_neither_value_nor_gradient(case):
    model, proposal = (Durations(jnp.zeros(2)), Bootstrap()) if case == "durations" else ZOO[case]()
    clean = make_series(model, 8, gaps=True).pad(11)
    hidden = ~np.broadcast_to(np.asarray(clean.observed), clean.observations.shape).copy()
    hidden[8:] = True

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def value_and_gradient(model, series):
        return SMC(30)(model, proposal, series, key=jax.random.key(0)).log_evidence

    value, gradient = value_and_gradient(model, clean)
    assert np.isfinite(value)
    assert any((leaf != 0).any() for leaf in jax.tree.leaves(gradient))
    for poison in (np.nan, np.inf, -np.inf, 0.0):
        values = jnp.where(hidden, jnp.asarray(poison), clean.observations)
        poisoned = eqx.tree_at(lambda s: s.observations, clean, values)
        other_value, other_gradient = value_and_gradient(model, poisoned)
        assert_same(value, other_value)
        for one, other in zip(jax.tree.leaves(gradient), jax.tree.leaves(other_gradient), strict=True):
            assert np.isfinite(one).all()
            assert_same(one, other)


class Elapsed(MarkovModel):
    """The input is the time since the last step, and scales the noise by its root."""

    log_scale: jax.Array

    def initial(self, memory, inputs):
        return dist.Normal(jnp.zeros(1), 1.0).to_event(1)

    def transition(self, memory, inputs):
        return dist.Normal(memory, jnp.exp(self.log_scale) * jnp.sqrt(inputs)).to_event(1)

    def emission(self, memory, latent, inputs):
        return dist.Normal(latent, 1.0).to_event(1)


class Drifting(MarkovModel):
    """What was possible at the first step is impossible at the last."""

    speed: jax.Array

    def initial(self, memory, inputs):
        return dist.Normal(jnp.zeros(1), 0.1).to_event(1)

    def transition(self, memory, inputs):
        return dist.Normal(memory + self.speed, 0.1).to_event(1)

    def emission(self, memory, latent, inputs):
        return dist.TruncatedNormal(latent, 1.0, low=latent - 2, high=latent + 2).to_event(1)


class Wide(Bootstrap):
    """Twice as wide as the prior."""

    def initial(self, prior, context):
        return dist.Normal(prior.mean, 2 * jnp.sqrt(prior.variance)).to_event(1)

    def step(self, prior, memory, context):
        return self.initial(prior, context)


@pytest.mark.parametrize(
    ("model", "series"),
    [
        pytest.param(
            Durations(jnp.zeros(2)),
            Series.from_values([[1.0, np.nan], [2.0, np.nan]]),
            id="column-never-observed",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            Elapsed(jnp.zeros(())),
            Series.from_values([0.1, 0.2, 0.3], inputs=[1.0, 2.0, 0.5]),
            id="time-differences",
            marks=pytest.mark.slow,
        ),
        pytest.param(Drifting(jnp.array(2.0)), Series.from_values([0.0, 2.0, 4.0, 6.0]), id="moving-support"),
    ],
)
def test_gradients_stay_finite_at_steps_that_do_not_exist(model, series):
    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def value_and_gradient(model, series):
        return SMC(50)(model, Wide(), series, key=jax.random.key(0)).log_evidence

    value, gradient = value_and_gradient(model, series)
    other_value, other_gradient = value_and_gradient(model, series.pad(6))
    empty = eqx.tree_at(lambda s: s.length, series.pad(6), jnp.asarray(0, jnp.int32))
    nothing, no_gradient = value_and_gradient(model, empty)
    assert_same(value, other_value)
    assert nothing == 0
    for one, other, none in zip(*map(jax.tree.leaves, (gradient, other_gradient, no_gradient)), strict=True):
        assert np.isfinite(one).all()
        assert_same(one, other)
        assert (none == 0).all()


class Wanderer(MarkovModel):
    """A particle below zero is dead, and its next step is not a number."""

    def initial(self, memory, inputs):
        return dist.Normal(jnp.zeros(1), 1.0).to_event(1)

    def transition(self, memory, inputs):
        return dist.Normal(jnp.sqrt(memory), 1.0).to_event(1)

    def emission(self, memory, latent, inputs):
        return dist.TruncatedNormal(jnp.abs(latent), 1.0, low=jnp.where(latent > 0, -9.0, 99.0)).to_event(1)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_dead_particles_do_not_poison_the_living(criterion):
    trace = SMC(50, criterion=CRITERIA[criterion])(
        Wanderer(), Bootstrap(), Series.from_values([1.0, 1.0, 1.0]), key=jax.random.key(0)
    )
    assert np.isfinite(trace.log_evidence)


@pytest.mark.ci
def test_windows_continue_a_run():
    model = MODELS["scalar"]()
    proposal = PROPOSALS["locally-optimal"](model)
    series = make_series(model, 12, gaps=True)
    sampler = SMC(30)
    key = jax.random.key(0)
    whole = sampler(model, proposal, series, key=key)
    first, second = series.window(0, 5), series.window(5, 12)
    begun = sampler(model, proposal, first, key=key)
    assert_same(begun.record.log_evidence, whole.record.log_evidence[:5])
    state, steps, increments = begun.state, frames(proposal, second), []
    for time in range(7):
        state, record = sampler.step(model, proposal, state, frame_at(steps, time), key=key)
        increments.append(record.log_evidence)
    assert_same(jnp.stack(increments), whole.record.log_evidence[5:])
    with pytest.raises(ValueError, match="no window from 5 to 13"):
        series.window(5, 13)


@pytest.mark.ci
def test_a_stream_equals_the_whole_run():
    model = MODELS["vector"]()
    proposal = PROPOSALS["locally-optimal"](model)
    series = make_series(model, 6, gaps=True)
    values = np.where(series.mask(), series.observations, np.nan)
    sampler, key = SMC(30), jax.random.key(0)
    whole = sampler(model, proposal, series, key=key)
    state, record = sampler.init(model, proposal, frame(proposal, values[0], time=0), key=key)
    found = [record.log_evidence]
    for time in range(1, 6):
        state, record = sampler.step(model, proposal, state, frame(proposal, values[time], time=time), key=key)
        found.append(record.log_evidence)
    assert_same(jnp.stack(found), whole.record.log_evidence)


def test_missing_values_are_integrated_out_of_a_correlated_emission():
    """At one step with the optimal proposal the evidence is exact: no Monte Carlo error hides a wrong marginal."""
    model = MODELS["vector"]()
    series = Series.from_values([[0.7, np.nan]])
    found = SMC(4)(model, PROPOSALS["locally-optimal"](model), series, key=jax.random.key(0)).log_evidence
    assert_same(found, kalman_filter(model, series).log_evidence)


@pytest.mark.parametrize(("case", "criterion"), EACH)
def test_steps_equal_the_whole_run(case, criterion):
    model, proposal = ZOO[case]()
    sampler = SMC(30, criterion=CRITERIA[criterion])
    key = jax.random.key(11)
    series = make_series(model, 7, gaps=True)
    whole = sampler(model, proposal, series, key=key, history=True)
    steps = frames(proposal, series)
    state, record = sampler.init(model, proposal, frame_at(steps, 0), key=key)
    increments = [record.log_evidence]
    for time in range(1, 7):
        state, record = sampler.step(model, proposal, state, frame_at(steps, time), key=key)
        increments.append(record.log_evidence)
        assert_same(record.ess, whole.record.ess[time])
    assert_same(jnp.stack(increments), whole.record.log_evidence)
    assert_same(state.latents, whole.state.latents)
    assert_same(state.log_weights, whole.state.log_weights)
    assert_same(state.particles.mean(), whole.history.particles.mean()[-1])


@pytest.mark.ci
def test_same_seed_same_bits_and_another_seed_others():
    model, proposal = ZOO["vector"]()
    series = make_series(model, 8, gaps=True)
    sampler = SMC(25)
    one, same, other = (sampler(model, proposal, series, key=jax.random.key(seed), history=True) for seed in (1, 1, 2))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(same), strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.log_evidence != other.log_evidence


def test_series_have_random_numbers_of_their_own():
    model, proposal = ZOO["scalar"]()
    values = make_series(model, 5).observations
    sampler = SMC(10)
    batch = stack([Series.from_values(values), Series.from_values(values)])
    together = jax.vmap(lambda series: sampler(model, proposal, series, key=jax.random.key(0)))(batch)
    assert together.log_evidence[0] != together.log_evidence[1]


@pytest.fixture
def compilations():
    """Counts what XLA compiles while the test runs."""
    found = []

    def listener(event, duration, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listener)
    yield found
    jax.monitoring.unregister_event_duration_listener(listener)


@pytest.mark.parametrize("sampler", [SMC(17), PIMH(SMC(17), 2)], ids=["smc", "pimh"])
def test_the_second_call_compiles_nothing(sampler, compilations):
    first, second = (
        MODELS["scalar"](),
        eqx.tree_at(lambda m: m.transition_matrix, MODELS["scalar"](), jnp.eye(1) * 0.5),
    )
    one, other = make_series(first, 6, seed=0), make_series(first, 6, seed=1)
    keys = jax.random.key(0), jax.random.key(1)
    sampler(first, PROPOSALS["affine"](first), one, key=keys[0])
    proposal = PROPOSALS["affine"](second)
    again = SMC(17, criterion=ESSBelow(0.25)) if isinstance(sampler, SMC) else sampler
    assert compilations
    compilations.clear()
    again(second, proposal, other, key=keys[1])
    assert not compilations


def test_record_counts_ancestors():
    model, proposal = ZOO["scalar"]()
    trace = SMC(40, criterion=Always())(model, proposal, make_series(model, 6), key=jax.random.key(0), history=True)
    distinct = [len(np.unique(ancestors)) for ancestors in trace.history.ancestors]
    np.testing.assert_array_equal(trace.record.unique_ancestors, distinct)
    assert trace.record.unique_ancestors[0] == 40
    assert trace.record.finite.all()


@pytest.mark.ci
def test_float32_agrees_with_float64():
    model, proposal = ZOO["scalar"]()
    series = make_series(model, 50)
    exact = kalman_filter(model, series).log_evidence
    with jax.enable_x64(False):
        single = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), (model, proposal, series))
        found = SMC(20_000)(*single, key=jax.random.key(0)).log_evidence
        assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, exact, atol=0.1)
