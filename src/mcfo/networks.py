"""The networks of deep models and proposals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float

from mcfo.types import Distribution, Key

_LEAST_SCALE = 1e-3
"""The least standard deviation from a network: an unbounded density has no maximum."""
_STEADY = 0.3
"""The factor of weights that should initially have little effect. With larger weights some standard deviations of a
transition are initially so small that one particle has all the weight, and learning may never recover."""

Vector = Float[Array, " size"]


class MLP(eqx.Module):
    """Affine layers with a ReLU between each two of them, each layer of its own width."""

    layers: tuple[eqx.nn.Linear, ...]

    def __init__(self, *sizes: int, key: Key):
        """**Arguments:**

        - `sizes`: the number of inputs, the hidden units of each layer, the number of outputs.
        """
        if len(sizes) < 2 or any(size < 1 for size in sizes):
            raise ValueError(f"A network needs inputs and outputs, one or more of each, but got sizes {sizes}.")
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(
            eqx.nn.Linear(before, after, key=key)
            for before, after, key in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )

    def __call__(self, *parts: Float[Array, " _"]) -> Float[Array, " outputs"]:
        """Return the outputs, for inputs in one part or in several."""
        first, *others = self.layers
        values = multiply(first.weight, *parts) + first.bias  # pyright: ignore[reportOperatorIssue]
        for layer in others:
            values = multiply(layer.weight, jax.nn.relu(values)) + layer.bias  # pyright: ignore[reportOperatorIssue]
        return values

    def with_bias(self, bias: Vector) -> MLP:
        """Return the network with another bias in its last layer."""
        return eqx.tree_at(lambda network: network.layers[-1].bias, self, jnp.asarray(bias, float))

    def with_scales(self, scales: Vector, *, steady: bool = False) -> MLP:
        """Return the network, whose outputs are means and raw scales, with these initial scales.

        **Arguments:**

        - `steady`: whether the inputs initially change them little.
        """
        *_, last = self.layers
        size = len(last.weight) // 2
        network = self.with_bias(last.bias.at[size:].set(raw_scale(scales)))  # pyright: ignore[reportOptionalMemberAccess]
        return network._with_weight(-1, lambda weight: weight.at[size:].multiply(_STEADY if steady else 1.0))

    def carries(self, count: int) -> bool:
        """Whether the layers are wide enough to carry `count` inputs through."""
        # If there are other inputs, a unit must be left for them.
        least = 2 * count + (self.layers[0].weight.shape[1] > count)
        return all(len(layer.weight) >= least for layer in self.layers[:-1])

    def with_parts(self, index: int, count: int, *, unchanged: int, steady: bool) -> MLP:
        """Return the network with outputs that initially pass on inputs, plus the other units.

        The first `count` outputs are the positive parts, at `index` and after it, minus the negative parts, which
        follow them; the next `unchanged` outputs equal the inputs at the same indices. Two units of each hidden layer
        carry an input, its positive and its negative part: see `carries`.

        **Arguments:**

        - `steady`: whether the other units initially contribute little; otherwise repeated application grows.
        """
        inputs, read = self.layers[0].weight.shape[1], count + unchanged
        positives, negatives = jnp.split(jnp.eye(2 * count, inputs, k=index), 2)
        same = jnp.eye(read, inputs)[count:]
        if len(self.layers) == 1:
            # A linear map that is far from the identity lets latents grow without bound.
            passed_on = jnp.concatenate([positives - negatives, same])
            return self._with_weight(0, lambda weight: weight.at[:read].set(_STEADY * weight[:read] + passed_on))
        carried = self._carrying(jnp.concatenate([positives, same, negatives, -same]), len(self.layers) - 1)
        share, parts = _STEADY if steady else 1.0, jnp.concatenate([jnp.eye(read), -jnp.eye(read)], axis=1)
        return carried._with_weight(
            -1, lambda weight: weight.at[:read].multiply(share).at[:read, : 2 * read].set(parts)
        )

    def with_rows(self, rows: Float[Array, "count inputs"]) -> MLP:
        """Return the network with first outputs that are initially, after the activation, the positive and the negative
        parts of the products of these rows with the inputs."""
        return self._carrying(jnp.concatenate([rows, -rows]), len(self.layers))

    def _carrying(self, rows: Float[Array, "carried inputs"], layers: int) -> MLP:
        """Return the network in which the first units of the first layers carry the products of these rows with the
        inputs."""
        carried, network = len(rows), self
        for index, layer in enumerate(self.layers[:layers]):
            here = rows if index == 0 else jnp.eye(carried, layer.weight.shape[1])
            network = network._with_weight(index, lambda weight, here=here: weight.at[:carried].set(here))
            bias = layer.bias.at[:carried].set(0.0)  # pyright: ignore[reportOptionalMemberAccess]
            network = eqx.tree_at(lambda n, index=index: n.layers[index].bias, network, bias)
        return network

    def _with_weight(self, index: int, change: Callable[[Any], Any]) -> MLP:
        return eqx.tree_at(lambda network: network.layers[index].weight, self, replace_fn=change)


def multiply(weight: Float[Array, "outputs inputs"], *parts: Float[Array, " _"]) -> Float[Array, " outputs"]:
    """Return weight @ concatenate(parts). A part that all particles share is multiplied once."""
    ends = list(itertools.accumulate(len(part) for part in parts))
    columns = jnp.split(weight, ends[:-1], axis=1)
    # Not weight @ part: under vmap its result would have the particles as columns, and would be transposed.
    products = [part @ block.T for block, part in zip(columns, parts, strict=True)]
    return sum(products[1:], start=products[0])


def rectified(*sizes: int, key: Key) -> MLP:
    """Build a network with initial weights N(0, 2 / inputs), in the last layer N(0, 1 / inputs), and zero biases.

    Signals keep their size through affine maps and ReLUs. He, Zhang, Ren and Sun (2015).
    """
    network = MLP(*sizes, key=key)
    keys = jax.random.split(key, len(network.layers))

    def drawn(layer: eqx.nn.Linear, gain: float, key: Key) -> eqx.nn.Linear:
        weight = gain * jax.random.normal(key, layer.weight.shape) / math.sqrt(layer.weight.shape[1])
        return eqx.tree_at(lambda one: (one.weight, one.bias), layer, (weight, jnp.zeros(len(weight))))

    gains = [math.sqrt(2)] * (len(network.layers) - 1) + [1.0]
    layers = tuple(drawn(*one) for one in zip(network.layers, gains, keys, strict=True))
    return eqx.tree_at(lambda one: one.layers, network, layers)


def xavier(module: Any, *, key: Key) -> Any:
    """Return the networks with initial weights U(-a, a), a² = 6 / (inputs + outputs), and zero biases.

    Signals then keep their size forwards and backwards through a layer; the default weights of `equinox.nn.Linear` are
    smaller by √3 or more. Glorot and Bengio (2010).
    """
    draw = jax.nn.initializers.glorot_uniform(in_axis=1, out_axis=0)
    leaves, structure = jax.tree.flatten(module)
    keys = jax.random.split(key, len(leaves))
    drawn = [
        draw(key, leaf.shape, leaf.dtype) if leaf.ndim == 2 else jnp.zeros_like(leaf)
        for key, leaf in zip(keys, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, drawn)


def normal(parameters: Float[Array, " twice_size"]) -> Distribution:
    """Return N(μ, diag σ²) from the outputs of a network: μ, then σ before softplus."""
    mean, raw = jnp.split(parameters, 2)
    return dist.Normal(mean, positive(raw)).to_event(1)


def positive(raw: Vector) -> Vector:
    """Return positive scales from unbounded numbers."""
    return jax.nn.softplus(raw) + _LEAST_SCALE


def raw_scale(scales: Vector) -> Vector:
    """Return the inverse of `positive`."""
    above = scales - _LEAST_SCALE
    return above + jnp.log(-jnp.expm1(-above))
