"""VRNN and SRNN against the same equations in numpy, and what padding, batches and gaps do to them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import special, stats

import mcfo
from mcfo import SMC, Series, stack
from mcfo.gradients.rules import has_networks
from mcfo.models.recurrent import SRNN, VRNN, Recurrence
from mcfo.objectives import Reverse
from mcfo.proposals.amortized import RecurrentProposal
from mcfo.types import Inputs, Latent, Memory, Observation
from support.gradients import ascent

FREQUENCIES = np.array([0.1, 0.5, 0.8])
VALUES = np.array([[1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 1, 0], [0, 0, 1], [1, 0, 0]])


def small(kind=VRNN, **options):
    model = kind(3, key=jax.random.key(0), latent=2, hidden=4, units=5, frequencies=FREQUENCIES)
    proposal = RecurrentProposal(3, 2, 4, key=jax.random.key(1), units=5, center=FREQUENCIES, **options)
    return model, proposal


def dense(network, values):
    for place, layer in enumerate(network.layers):
        values = np.asarray(layer.weight) @ values + np.asarray(layer.bias)
        values = values if place == len(network.layers) - 1 else np.maximum(values, 0)
    return values


def lstm(cell, read, hidden, memory):
    gates = np.asarray(cell.weight_ih) @ read + np.asarray(cell.weight_hh) @ hidden + np.asarray(cell.bias)
    i, f, g, o = np.split(gates, 4)
    memory = special.expit(f) * memory + special.expit(i) * np.tanh(g)
    return special.expit(o) * np.tanh(memory), memory


@pytest.mark.ci
@pytest.mark.parametrize("kind", [VRNN, SRNN])
def test_the_joint_density_is_that_of_the_equations(kind):
    model, _ = small(kind)
    latents = np.random.default_rng(0).normal(size=(len(VALUES), 2))
    found, memory = 0.0, model.start(None)
    wanted, hidden, cell, before = 0.0, np.zeros(4), np.zeros(4), np.zeros(2)
    for step, (latent, value) in enumerate(zip(latents, VALUES, strict=True)):
        law = (model.initial if step == 0 else model.transition)(memory, None)
        emission = model.emission(memory, jnp.asarray(latent), None)
        found += float(law.log_prob(jnp.asarray(latent)) + emission.log_prob(jnp.asarray(value)))
        memory = model.advance(memory, jnp.asarray(latent), jnp.asarray(value))

        encoded = np.maximum(dense(model.latent_encoder, latent), 0)
        chain = np.maximum(dense(model.latent_encoder, before), 0)
        read = hidden if kind is VRNN else np.concatenate([hidden, chain])
        mean, raw = np.split(dense(model.prior_network, read), 2)
        wanted += stats.norm.logpdf(latent, mean, np.log1p(np.exp(raw + 0.25))).sum()
        logits = dense(model.emission_network, np.concatenate([hidden, encoded]))
        wanted += stats.bernoulli.logpmf(value, special.expit(logits)).sum()
        seen = np.maximum(dense(model.observation_encoder, value - FREQUENCIES), 0)
        hidden, cell = lstm(model.cell, np.concatenate([seen, encoded]) if kind is VRNN else seen, hidden, cell)
        before = latent
    assert found == pytest.approx(wanted, rel=1e-10)


def test_it_begins_with_the_frequencies_of_the_data():
    model, _ = small()
    quiet = eqx.tree_at(lambda m: m.emission_network.layers[-1].weight, model, jnp.zeros((3, 5)))
    np.testing.assert_allclose(quiet.emission(model.start(None), jnp.zeros(2), None).mean, FREQUENCIES, rtol=1e-10)


def test_networks_begin_with_weights_that_keep_the_size_of_a_signal():
    model = VRNN(88, key=jax.random.key(0), frequencies=np.full(88, 0.2))
    proposal = RecurrentProposal(88, 64, 64, key=jax.random.key(1))
    of_model = (model.observation_encoder, model.latent_encoder, model.prior_network)
    for layer in [layer for network in (*of_model, proposal.encoder, proposal.network) for layer in network.layers]:
        outputs, inputs = layer.weight.shape
        np.testing.assert_array_equal(layer.bias, 0)
        assert float(jnp.var(layer.weight)) == pytest.approx(2 / (inputs + outputs), rel=0.05)
    assert float(jnp.var(model.cell.weight_hh)) == pytest.approx(2 / (64 + 256), rel=0.05)
    np.testing.assert_allclose(model.emission_network.layers[-1].bias, special.logit(0.2), rtol=1e-6)


def test_the_sizes_by_default_are_the_papers():
    model = VRNN(88, key=jax.random.key(0))
    proposal = RecurrentProposal(88, 64, 64, key=jax.random.key(1))
    assert (model.cell.hidden_size, model.latent_size) == (64, 64)
    for network in (model.prior_network, model.emission_network, proposal.network):
        assert [layer.weight.shape[0] for layer in network.layers[:-1]] == [64]


def test_a_residual_proposal_begins_around_the_prior_and_a_blind_one_is_it():
    model, proposal = small()
    prior = model.transition(model.start(None), None)
    silent = eqx.tree_at(lambda q: q.network.layers[-1].weight, proposal, jnp.zeros((4, 5)))
    silent = eqx.tree_at(lambda q: q.network.layers[-1].bias, silent, jnp.zeros(4))
    np.testing.assert_allclose(silent.initial(prior, (jnp.zeros(5), None)).mean, prior.mean, rtol=1e-12)
    _, plain = small(residual=False)
    moved = prior.mean + plain.initial(prior, (jnp.zeros(5), None)).mean
    np.testing.assert_allclose(proposal.initial(prior, (jnp.zeros(5), None)).mean, moved, rtol=1e-10)
    blind = proposal.step(prior, model.start(None), (jnp.zeros(5), jnp.asarray(False)))
    np.testing.assert_allclose(blind.variance, prior.variance, rtol=1e-10)
    np.testing.assert_allclose(blind.mean, prior.mean, rtol=1e-12)


@pytest.mark.ci
@pytest.mark.parametrize("kind", [VRNN, pytest.param(SRNN, marks=pytest.mark.slow)])
def test_padding_and_the_order_of_a_batch_change_no_likelihood(kind):
    model, proposal = small(kind)
    gap = VALUES.astype(float)
    gap[1] = np.nan
    pieces = [
        Series.from_values(gap, series_id=4),
        Series.from_values(np.where(np.arange(4)[:, None] == 2, np.nan, VALUES[:4]), series_id=7),
    ]
    run = eqx.filter_jit(jax.vmap(lambda one: SMC(20)(model, proposal, one, key=jax.random.key(2)).log_evidence))
    alone = [float(run(stack([piece]))[0]) for piece in pieces]
    np.testing.assert_allclose(run(stack(pieces)), alone, rtol=1e-10)
    np.testing.assert_allclose(run(stack(pieces[::-1])), alone[::-1], rtol=1e-10)
    np.testing.assert_allclose(run(stack([piece.pad(9) for piece in pieces])), alone, rtol=1e-10)


@pytest.mark.slow
def test_the_recurrence_learns_across_time_and_windows_cut_it():
    model, proposal = small()
    batch = stack([Series.from_values(VALUES, series_id=0), Series.from_values(VALUES[:4], series_id=1)])

    def gradient(objective):
        gradients, run = eqx.filter_jit(ascent)(objective, model, proposal, batch, jax.random.key(0))
        return (
            gradients,
            np.asarray(ravel_pytree(eqx.filter(gradients, eqx.is_inexact_array))[0]),
            np.asarray(run.log_evidence),
        )

    whole, vector, evidence = gradient(mcfo.objectives.mcfo(6))
    assert np.abs(whole[0].cell.weight_ih).max() > 1e-6
    _, again, _ = gradient(mcfo.objectives.mcfo(6, backward=Reverse(checkpoint=True)))
    np.testing.assert_allclose(again, vector, rtol=1e-9, atol=1e-11)
    _, same, _ = gradient(mcfo.objectives.mcfo(6, backward=Reverse(window=6, series=1)))
    np.testing.assert_allclose(same, vector, rtol=1e-9, atol=1e-11)
    cut, _, unchanged = gradient(mcfo.objectives.mcfo(6, backward=Reverse(window=1)))
    np.testing.assert_allclose(unchanged, evidence, rtol=1e-12)
    # Nothing that the LSTM does is of use within its own step.
    np.testing.assert_allclose(cut[0].cell.weight_ih, 0.0, atol=1e-12)
    np.testing.assert_allclose(
        cut[1].network.layers[0].weight, whole[1].network.layers[0].weight, rtol=1e-9, atol=1e-11
    )


class Counting(VRNN):
    """Counts its steps in its memory, to no effect."""

    def start(self, inputs: Inputs) -> Recurrence:
        return super().start(inputs)._replace(latent=jnp.zeros((), jnp.int32))

    def advance(self, memory: Memory, latent: Latent, observation: Observation) -> Recurrence:
        return super().advance(memory, latent, observation)._replace(latent=memory.latent + 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "steps", "options"),
    [
        (VRNN, 6, {"phi": "dreg"}),
        (VRNN, 6, {"theta": "fisher"}),
        (SRNN, 6, {}),
        (Counting, 6, {}),
        (VRNN, 1, {}),
    ],
)
def test_large_recurrent_models_have_the_gradients_of_ordinary_reverse_mode(kind, steps, options):
    model = kind(3, key=jax.random.key(0), latent=4, hidden=8, units=12, frequencies=FREQUENCIES)
    proposal = RecurrentProposal(3, 4, 8, key=jax.random.key(1), units=12, center=FREQUENCIES)
    assert has_networks(model, proposal)
    pieces = [Series.from_values(VALUES[:steps], series_id=0), Series.from_values(VALUES[: min(4, steps)], series_id=1)]

    def gradient(objective):
        gradients, run = eqx.filter_jit(ascent)(objective, model, proposal, stack(pieces), jax.random.key(0))
        return ravel_pytree(eqx.filter(gradients, eqx.is_inexact_array))[0], run.log_evidence

    found, evidence = gradient(mcfo.objectives.mcfo(5, **options))
    wanted, same = gradient(mcfo.objectives.mcfo(5, backward=Reverse(checkpoint=True), **options))
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(evidence, same, rtol=1e-12)
    assert np.abs(found).max() > 1e-3


@pytest.mark.slow
def test_windows_bound_the_memory_of_long_pieces():
    model, proposal = small()

    def temporary(steps, window):
        piece = stack([Series.from_values(np.tile(VALUES, (steps // 6 + 1, 1))[:steps])])
        objective = mcfo.objectives.mcfo(20, backward=Reverse(window=window))
        program = jax.jit(lambda key: ascent(objective, model, proposal, piece, key)[0])
        return program.lower(jax.random.key(0)).compile().memory_analysis().temp_size_in_bytes

    short, long, whole = temporary(200, 20), temporary(2000, 20), temporary(2000, None)
    # What is kept for each step (of one particle's size, and the encoder's) grows with the piece, the pass does not.
    assert long - short < 0.1 * (whole - short)
