"""The deep model and the amortized proposal: as networks they are only sizes, so what they become in known cases."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import mcfo
from mcfo import SMC, Series, kalman_filter
from mcfo.models import DeepMarkov, LinearGaussian
from mcfo.networks import MLP, rectified
from mcfo.proposals import Amortized
from support.means import assert_mean

KEY = jax.random.key(0)


def small(kind="bernoulli", **options):
    model = DeepMarkov(5, key=KEY, latent=2, transition=(4,), emission=(3, 6), kind=kind, **options)
    return model, Amortized(5, 2, key=jax.random.key(1), encoder=(6, 3), hidden=(4,))


def test_a_network_is_what_its_layers_say():
    network = MLP(2, 4, 3, 1, key=KEY)
    values = np.array([0.3, -1.2])
    for place, layer in enumerate(network.layers):
        values = np.asarray(layer.weight) @ values + np.asarray(layer.bias)
        values = values if place == 2 else np.maximum(values, 0)
    np.testing.assert_allclose(network(jnp.array([0.3, -1.2])), values, rtol=1e-12)
    for sizes in ((3,), (2, 0, 1)):
        with pytest.raises(ValueError, match="one or more of each"):
            MLP(*sizes, key=KEY)


@pytest.mark.ci
@pytest.mark.parametrize("sizes", [(), (7,), (4, 9, 5)])
def test_a_transition_begins_near_the_identity(sizes):
    plain, near = (
        DeepMarkov(5, key=KEY, latent=2, transition=sizes, emission=(3,), persistent=persistent).transition_network
        for persistent in (False, True)
    )
    # Without the units that do not carry an input, and without a bias, nothing but the identity is left.
    bare = near
    for place, layer in enumerate(near.layers):
        last = place == len(near.layers) - 1
        kept = jnp.zeros_like(layer.weight)
        rows, columns = (2, 2) if not sizes else (2 if last else 4, 2 if place == 0 else 4)
        kept = kept.at[:rows, :columns].set(layer.weight[:rows, :columns])
        bare = eqx.tree_at(lambda n, place=place: n.layers[place].weight, bare, kept)
        bare = eqx.tree_at(lambda n, place=place: n.layers[place].bias, bare, jnp.zeros_like(layer.bias))
    latents = jax.random.normal(jax.random.key(1), (50, 2))
    if sizes:
        np.testing.assert_allclose(jax.vmap(bare)(latents)[:, :2], latents, atol=1e-12)

    def slopes(network):
        return jax.vmap(jax.jacobian(network))(latents)[:, :2].mean(0)

    assert np.abs(slopes(near) - np.eye(2)).max() < 0.7 < np.abs(slopes(plain) - np.eye(2)).max()


@pytest.mark.ci
def test_a_network_too_narrow_to_carry_its_inputs_begins_as_any_other():
    assert [MLP(2, units, 4, key=KEY).carries(2) for units in (3, 4)] == [False, True]
    assert [MLP(3, units, 4, key=KEY).carries(2) for units in (4, 5)] == [False, True], "a unit for the third input"
    narrow, plain = (DeepMarkov(9, key=KEY, transition=(5,), persistent=persistent) for persistent in (True, False))
    assert eqx.tree_equal(narrow, plain)
    assert narrow.transition(jnp.zeros(3), None).base_dist.scale == pytest.approx(0.3)


@pytest.mark.ci
def test_a_proposal_begins_near_the_latent_before():
    """The encoder's features move it, the latent carries over; without that it does not."""
    features, latents = jax.random.normal(KEY, (200, 32)), jax.random.normal(jax.random.key(1), (200, 3))

    def slope(persistent):
        proposal = Amortized(9, 3, key=KEY, persistent=persistent)

        def mean(latent, features):
            return proposal.step(None, latent, (features, None)).mean

        return np.asarray(jax.vmap(jax.jacobian(mean))(latents, features).mean(0))

    assert np.abs(slope(True) - np.eye(3)).max() < 0.4 < np.abs(slope(False) - np.eye(3)).max()


@pytest.mark.ci
@pytest.mark.parametrize("hidden", [(), (9,), (12, 9)])
def test_a_proposal_may_begin_at_directions_of_the_observation(hidden):
    """All else says little; a proposal without directions, and one too narrow for them, is far from them."""
    rows = np.array([[1.0, -2.0, 0.0, 0.5, 1.0], [0.0, 1.0, 1.0, -1.0, 2.0]])
    frames, empty = jax.random.normal(KEY, (400, 5)), Series.from_values(np.zeros((1, 5)))

    def slopes(units, directions):
        proposal = Amortized(
            5, 2, key=KEY, encoder=(units, 8), hidden=hidden, traces=1, directions=directions, center=0.3, scale=2.0
        )

        def means(frame):
            features, _ = proposal.encode(eqx.tree_at(lambda one: one.observations, empty, frame[None]))
            step = proposal.step(None, jnp.array([0.4, -0.3, 0.2]), (features[0], None))
            return proposal.initial(None, (features[0], None)).mean[:2], step.mean[:2]

        return np.asarray(jax.vmap(jax.jacobian(means))(frames)).mean(1)

    for found in slopes(10, rows):
        assert np.abs(found - rows / 2).max() < 0.4
    for found in (*slopes(10, None), *slopes(2, rows)):
        assert np.abs(found - rows / 2).max() > 0.6
    for found in slopes(4, rows):
        assert np.abs(found - rows / 2)[0].max() < 0.4, "room for one of them"
        assert np.abs(found - rows / 2)[1].max() > 0.6
    for wrong in (rows[:, :4], np.ones((3, 5)), rows[0]):
        with pytest.raises(ValueError, match="a row of 5 numbers for each of 2 latents, or for some, but got shape"):
            slopes(10, wrong)


@pytest.mark.ci
@pytest.mark.parametrize("traces", [0, 2, 3])
def test_traces_follow_their_latents(traces):
    """From zero, whatever is learned; model and proposal say the same of them, so that they weigh nothing."""
    model = DeepMarkov(9, key=KEY, traces=traces)
    proposal = Amortized(9, 3, key=jax.random.key(1), traces=traces)
    latent, context = jax.random.normal(KEY, (3 + traces,)), (jnp.ones(32), None)
    for law in (model.initial(None, None), proposal.initial(None, context)):
        np.testing.assert_allclose(law.mean[3:], 0.0)
        np.testing.assert_allclose(law.base_dist.scale[3:], 0.05)
    modules = model, proposal
    for place, step in enumerate(
        (lambda model: model.transition(latent, None), lambda proposal: proposal.step(None, latent, context))
    ):
        law = step(modules[place])
        np.testing.assert_allclose(law.mean[3:], 0.7 * latent[3:] + 0.3 * latent[:traces], rtol=1e-6)
        np.testing.assert_allclose(law.base_dist.scale[3:], 0.05)
        for read in (lambda law: law.mean, lambda law: law.base_dist.scale):
            slopes = eqx.filter_jacrev(lambda module, step=step, read=read: read(step(module)))(modules[place])
            leaves = jax.tree.leaves(eqx.filter(slopes, eqx.is_array))
            assert not any(np.asarray(leaf[3:]).any() for leaf in leaves)
            assert any(np.asarray(leaf[:3]).any() for leaf in leaves), "negative control"
    moved = np.asarray(jax.jacobian(lambda latent: model.transition(latent, None).mean)(latent))
    assert moved[:3, 3:].all(), "they move the latents"
    shown = np.asarray(jax.jacobian(lambda latent: model.emission(None, latent, None).mean)(latent))
    assert not shown[:, 3:].any()
    assert shown[:, :3].any(axis=0).all()


def test_no_more_traces_than_latents():
    for traces in (4, -1):
        with pytest.raises(ValueError, match=f"Of 3 latents 0 to 3 can have a trace, but got {traces}"):
            DeepMarkov(9, key=KEY, traces=traces)


@pytest.mark.ci
def test_deviations_of_a_step_begin_small():
    """So that a latent remembers. Those of the transition hardly depend on the latent, whatever it is."""
    latents = jax.random.normal(KEY, (200, 3))
    model, proposal = DeepMarkov(9, key=KEY), Amortized(9, 3, key=KEY)
    found = np.sqrt(jax.vmap(lambda latent: model.transition(latent, None).variance)(latents))
    assert model.transition(jnp.zeros(3), None).base_dist.scale == pytest.approx(0.3)
    assert 0.1 < found.min() < found.max() < 0.9
    nothing = jnp.zeros(32), None
    assert proposal.step(None, jnp.zeros(3), nothing).base_dist.scale == pytest.approx(0.3)


def test_a_signal_keeps_its_size_through_rectified_layers():
    values = jax.random.normal(jax.random.key(1), (300, 50))

    def size(network):
        return float(jnp.sqrt(jnp.mean(jax.vmap(network)(values) ** 2)))

    sizes = 50, 400, 400, 400, 400
    assert size(rectified(*sizes, key=KEY)) == pytest.approx(1.0, abs=0.2)
    assert size(MLP(*sizes, key=KEY)) < 0.2, "the negative control: weights of equinox.nn.Linear"


def test_the_sizes_by_default_are_the_papers():
    def sizes(network):
        return [network.layers[0].weight.shape[1], *(layer.weight.shape[0] for layer in network.layers)]

    for traces in (0, 3):
        model, proposal = DeepMarkov(1024, key=KEY, traces=traces), Amortized(1024, 3, key=KEY, traces=traces)
        assert sizes(model.transition_network) == [3 + traces, 64, 6]
        assert sizes(model.emission_network) == [3, 16, 64, 512, 2048, 1024]
        assert sizes(proposal.encoder) == [1024, 128, 32]
        assert sizes(proposal.initial_network) == [32, 32, 6]
        assert sizes(proposal.step_network) == [35 + traces, 32, 6]
        assert model.latent_size == 3


def test_densities():
    latent, values = jnp.array([0.4, -0.3]), jnp.array([0, 1, 1, 0, 1])
    model, _ = small(bias=np.array([0.1, -2.0, 0.0, 1.0, 3.0]))
    logits = np.asarray(model.emission_network(latent))
    wanted = stats.bernoulli.logpmf(values, 1 / (1 + np.exp(-logits))).sum()
    assert model.emission(None, latent, None).log_prob(values) == pytest.approx(wanted, rel=1e-10)
    center, scale = np.arange(5.0), np.array([1e-6, 0.2, 0.3, 4.0, 5e6])
    model, _ = small("gaussian", center=center, scale=scale)
    means = center + scale * np.asarray(model.emission_network(latent))
    found = model.emission(None, latent, None)
    np.testing.assert_allclose(found.base_dist.scale, scale, rtol=1e-10)
    wanted = stats.norm.logpdf(values, means, found.base_dist.scale).sum()
    assert found.log_prob(values) == pytest.approx(wanted, rel=1e-10)
    np.testing.assert_allclose(model.initial(None, None).mean, 0.0)
    assert (model.transition(latent, None).variance > 0).all()


@pytest.mark.ci
def test_without_hidden_layers_it_is_a_linear_gaussian_model():
    """And its evidence the Kalman filter's; the negative control has another transition."""
    sizes = {"latent": 2, "transition": (), "emission": ()}
    model = DeepMarkov(2, key=KEY, **sizes, persistent=False, kind="gaussian", bias=0.3, center=0.1, scale=2.0)
    network = model.transition_network.layers[0]
    constant = 0.3 * network.weight.at[2:].set(0.0)
    model = eqx.tree_at(lambda m: m.transition_network.layers[0].weight, model, constant)
    law = model.transition(jnp.zeros(2), None)
    linear = LinearGaussian(
        initial_mean=jnp.zeros(2),
        initial_noise=model.initial(None, None).variance,
        transition_matrix=constant[:2],
        transition_offset=network.bias[:2],
        transition_noise=law.variance,
        emission_matrix=2.0 * model.emission_network.layers[0].weight,
        emission_offset=0.1 + 2.0 * model.emission_network.layers[0].bias,
        emission_noise=jnp.full(2, 4.0),
    )
    values = np.array([[0.3, 1.0], [0.5, np.nan], [np.nan, np.nan], [-0.4, 0.2], [1.5, -1.0]])
    series = Series.from_values(values)
    proposal = Amortized(2, 2, key=jax.random.key(3), encoder=(4,), hidden=(4,))
    # Deviations that depend on nothing, so that none is too small.
    for name in ("initial_network", "step_network"):
        where = lambda one, name=name: getattr(one, name)  # noqa: E731
        proposal = eqx.tree_at(where, proposal, where(proposal).with_scales(jnp.full(2, 0.7)))
        proposal = eqx.tree_at(lambda p: where(p).layers[-1].weight, proposal, replace_fn=lambda w: w.at[2:].set(0.0))  # noqa: B023

    @eqx.filter_jit
    def ratios(model):
        runs = jax.vmap(lambda key: SMC(500)(model, proposal, series, key=key).log_evidence)
        return jnp.exp(runs(jax.random.split(jax.random.key(4), 2000)) - kalman_filter(linear, series).log_evidence)

    found = np.asarray(ratios(model))
    assert found.std() < 0.5
    assert_mean(found, 1.0)
    other = eqx.tree_at(lambda m: m.transition_network.layers[0].weight, model, constant.at[:2].add(jnp.eye(2)))
    with pytest.raises(AssertionError):
        assert_mean(np.asarray(ratios(other)), 1.0)


def test_where_nothing_is_seen_the_proposal_is_the_prior():
    model, proposal = small()
    values = np.array([[0, 1, 1, 0, 1], [np.nan] * 5, [1, np.nan, 0, 0, 1]])
    steps = mcfo.smc.frames(proposal, Series.from_values(values))
    memory = jnp.array([0.2, -0.7])
    prior = model.transition(memory, None)
    seen, blind, partly = (
        proposal.step(prior, memory, jax.tree.map(lambda array, time=time: array[time], steps.context))
        for time in range(3)
    )
    np.testing.assert_allclose(blind.mean, prior.mean)
    np.testing.assert_allclose(blind.variance, prior.variance)
    for law in (seen, partly):
        assert not np.allclose(law.mean, prior.mean)


@pytest.mark.slow
def test_what_is_missing_or_padded_changes_nothing():
    model, proposal = small()
    values = np.array([[0.0, 1, 1, 0, 1], [1, 1, 0, 0, 0], [1, 0, 0, 0, 1]])
    observed = np.array([[True] * 5, [False] * 5, [True, False, True, True, True]])

    @eqx.filter_jit
    def bound_and_gradient(series):
        return eqx.filter_value_and_grad(lambda both: mcfo.objectives.mcfo(6).loss(*both, series, key=KEY)[0])(
            (model, proposal)
        )

    one = bound_and_gradient(Series.from_values(values, observed=observed))
    other = bound_and_gradient(Series.from_values(np.where(observed, values, 1 - values), observed=observed).pad(5))
    for first, second in zip(*map(jax.tree.leaves, (one, other)), strict=True):
        assert np.isfinite(first).all()
        np.testing.assert_allclose(first, second, rtol=1e-9, atol=1e-12)


@pytest.mark.ci
def test_gradients_are_those_of_finite_differences():
    """Of the bound itself, by the pathwise rule without resampling, in every array of model and proposal."""
    model, proposal = small()
    series = Series.from_values([[0.0, 1, 1, 0, 1], [1, 1, 0, 0, 0]])
    arrays, static = eqx.partition((model, proposal), eqx.is_inexact_array)
    flat, unflatten = jax.flatten_util.ravel_pytree(arrays)
    # Away from the start, whose biases are zero: there a ReLU that gets nothing stands at its kink.
    flat = flat + 0.1 * jax.random.normal(jax.random.key(8), flat.shape)

    @jax.jit
    def bound(flat):
        both = eqx.combine(unflatten(flat), static)
        return mcfo.objectives.iwae(3).loss(*both, series, key=KEY)[0]

    direction = jax.random.normal(jax.random.key(9), flat.shape)
    step = 1e-5
    difference = (bound(flat + step * direction) - bound(flat - step * direction)) / (2 * step)
    assert float(jax.grad(bound)(flat) @ direction) == pytest.approx(float(difference), rel=1e-6)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="'bernoulli' or 'gaussian', but got 'poisson'"):
        DeepMarkov(3, key=KEY, kind="poisson")
    with pytest.raises(RuntimeError, match="A scale must be positive"):
        DeepMarkov(3, key=KEY, kind="gaussian", scale=[1.0, 0.0, 2.0])
    with pytest.raises(ValueError, match="broadcasting"):
        DeepMarkov(1, key=KEY, bias=np.zeros(5))
    assert DeepMarkov(5, key=KEY, bias=0.3).emission_network.layers[-1].bias.shape == (5,)
