"""One time series as the samplers read it: values, what is missing, inputs, length and number."""

from __future__ import annotations

from collections.abc import Sequence as Listing
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from mcfo.reading import float_dtype, read_mask, read_place, read_table, require_finite
from mcfo.types import Context

_HARMLESS = 0.5


class Frame(eqx.Module):
    """One step of one sequence.

    It knows whose step it is (`number`) and which (`time`), because random numbers belong to a sequence and a
    step: windows, padding and the order in a batch then change nothing.
    """

    observation: Shaped[Array, "*steps dimensions"]
    observed: Bool[Array, "*steps #dimensions"] | None
    inputs: Float[Array, "*steps inputs"] | None
    context: Context
    present: Bool[Array, "*steps"] | None
    time: Int[Array, "*steps"]
    number: Int[Array, "*steps"]

    def unless_padding(self, new: Any, old: Any) -> Any:
        """`new` where the step exists, `old` where it is padding."""
        if self.present is None:
            return new
        present = self.present
        return jax.tree.map(lambda new, old: jnp.where(present, new, old), new, old)


class Sequence(eqx.Module):
    """A series x_1:T with one mask for each step and observed dimension, and optional inputs u_1:T.

    `observed` is None where nothing is missing, and has one column where steps are missing whole (which any emission
    can leave out, while single dimensions can only be left out of one that factorises). `length` is None where
    nothing is padding. A *missing* step is one of the model's steps (the latent moves on unseen); a *padded* step does
    not exist: no particle moves, nothing is weighted or resampled. `number` says which series of a data set it is and
    `start` at which step of it the first row stands: random numbers follow both.

    Make one with [`Sequence.from_values`][], which checks the data. A batch is a `Sequence` whose arrays have
    one more axis in front: see [`stack`][].
    """

    observations: Shaped[Array, "steps dimensions"]
    observed: Bool[Array, "steps #dimensions"] | None
    inputs: Float[Array, "steps inputs"] | None
    length: Int[Array, ""] | None
    number: Int[Array, ""]
    start: Int[Array, ""]

    @classmethod
    def from_values(
        cls,
        values: Any,
        *,
        observed: Any = None,
        inputs: Any = None,
        number: int = 0,
    ) -> Sequence:
        """Reads and checks one series.

        **Arguments:**

        - `values`: shape (steps, dimensions), or (steps,) for one dimension. NaN means missing.
        - `observed`: True where a value was observed; shape (steps, dimensions) or (steps,). Values are ignored
          where it is False. Whatever is NaN is missing as well.
        - `inputs`: exogenous inputs, shape (steps, inputs) or (steps,); every one must be finite.
        - `number`: which of a data set's series this is. Random numbers follow it.
        """
        observations = read_table(values, "observations")
        missing = np.isnan(observations) if np.issubdtype(observations.dtype, np.floating) else None
        mask = None if missing is None or not missing.any() else ~missing
        if observed is not None:
            given = read_mask(observed, observations.shape)
            mask = given if mask is None else given & mask
        if mask is not None and not mask.any():
            raise ValueError(
                f"All {observations.size} values of the series are missing. Remove the series, or give at "
                "least one observation: a likelihood needs something to explain."
            )
        require_finite(observations, mask, "observations")
        if inputs is not None:
            inputs = read_table(inputs, "inputs").astype(float_dtype())
            if len(inputs) != len(observations):
                raise ValueError(
                    f"There are {len(observations)} observations but {len(inputs)} inputs. Give one row of "
                    "inputs for each step, also where the observation is missing."
                )
            if np.isnan(inputs).any():
                row = int(np.argwhere(np.isnan(inputs))[0, 0])
                raise ValueError(
                    f"inputs[{row}] is NaN. Inputs cannot be missing: fill the gap, or make the column an observation."
                )
            require_finite(inputs, None, "inputs")
        if mask is not None:
            whole = (mask == mask[:, :1]).all()
            mask = None if mask.all() else jnp.asarray(mask[:, :1] if whole else mask)
        # Not by jnp.asarray, which compiles a program for each shape.
        return cls(
            observations=jax.device_put(observations),
            observed=mask,
            inputs=None if inputs is None else jax.device_put(inputs),
            length=None,
            number=jax.device_put(np.int32(read_place(number, "number"))),
            start=jax.device_put(np.int32(0)),
        )

    @property
    def steps(self) -> int:
        """The number of steps, padding included; it is static."""
        return self.observations.shape[-2]

    def pad(self, steps: int) -> Sequence:
        """The same series followed by padding up to `steps`; no likelihood changes."""
        extra = steps - self.steps
        if extra < 0:
            raise ValueError(f"Cannot pad a series of {self.steps} steps to {steps}. Ask for at least {self.steps}.")
        length = jnp.asarray(self.steps, jnp.int32) if self.length is None else self.length

        def lengthen(array):
            # In numpy: JAX would compile a program for every length.
            return None if array is None else jnp.asarray(np.pad(np.asarray(array), ((0, extra), (0, 0))))

        return Sequence(
            observations=lengthen(self.observations),  # pyright: ignore[reportArgumentType]
            observed=lengthen(self.observed),
            inputs=lengthen(self.inputs),
            length=length,
            number=self.number,
            start=self.start,
        )

    def window(self, begin: int, end: int) -> Sequence:
        """The steps from `begin` up to `end`, with the random numbers that they have in the whole series."""
        if not 0 <= begin < end <= self.steps:
            raise ValueError(f"There is no window from {begin} to {end} in a series of {self.steps} steps.")

        def cut(array):
            return None if array is None else array[begin:end]

        return Sequence(
            observations=self.observations[begin:end],
            observed=cut(self.observed),
            inputs=cut(self.inputs),
            length=None if self.length is None else jnp.clip(self.length - begin, 0, end - begin),
            number=self.number,
            start=self.start + begin,
        )

    def mask(self) -> Bool[Array, "steps dimensions"]:
        """True where a value was observed, one flag for each step and dimension, whatever form `observed` has."""
        known = jnp.ones((1, 1), bool) if self.observed is None else self.observed
        present = self.present()
        if present is not None:
            known = known & present[:, None]
        return jnp.broadcast_to(known, self.observations.shape)

    def present(self) -> Bool[Array, " steps"] | None:
        """True at the steps that exist; None if all do."""
        return None if self.length is None else jnp.arange(self.steps) < self.length

    def sanitised(self) -> Sequence:
        """The same series with a harmless value in every masked or padded place.

        Masked terms are multiplied out of likelihoods by a `where`, whose gradient is still NaN if the branch not
        taken is. So what stands there should be a value that the emission accepts: the first observed one of the same
        dimension, or 0.5 in a dimension that is never observed (inside the support of every common distribution).
        """
        present = self.present()
        if self.observed is None and present is None:
            return self
        known = self.mask()
        floating = jnp.issubdtype(self.observations.dtype, jnp.floating)
        first = jnp.take_along_axis(self.observations, jnp.argmax(known, axis=0)[None], axis=0)
        fill = jnp.where(jnp.any(known, axis=0, keepdims=True), first, _HARMLESS if floating else 1).astype(first.dtype)
        clean = eqx.tree_at(lambda s: s.observations, self, jnp.where(known, self.observations, fill))
        if self.inputs is not None and present is not None:
            # Not zero: inputs are often time differences, by whose root a scale is multiplied.
            inputs = jnp.where(present[:, None], self.inputs, self.inputs[0])
            clean = eqx.tree_at(lambda s: s.inputs, clean, inputs)
        return clean

    def frames(self, contexts: Context) -> Frame:
        """All steps as one [`Frame`][] whose arrays have the time in front, as `jax.lax.scan` takes them."""
        steps = self.steps
        return Frame(
            observation=self.observations,
            observed=self.observed,
            inputs=self.inputs,
            context=contexts,
            present=self.present(),
            time=self.start + jnp.arange(steps, dtype=jnp.int32),
            number=jnp.broadcast_to(self.number, (steps,)),
        )


def numbered(sequences: Listing[Sequence]) -> list[Sequence]:
    """The same series, if they can go together, each with a number of its own: by place where all have the default one;
    otherwise their numbers must differ."""
    if not sequences:
        raise ValueError("Cannot stack an empty list of sequences. Give at least one.")
    dimensions = {sequence.observations.shape[1] for sequence in sequences}
    if len(dimensions) > 1:
        raise ValueError(
            f"The series have different numbers of observed dimensions: {sorted(dimensions)}. Give every series "
            "the same columns, with NaN in those that it lacks."
        )
    if len({sequence.inputs is None for sequence in sequences}) > 1:
        raise ValueError("Some series have inputs and others have none. Give inputs to all of them, or to none.")
    numbers = [int(sequence.number) for sequence in sequences]
    if not any(numbers):
        numbers = list(range(len(sequences)))
    if len(set(numbers)) < len(numbers):
        raise ValueError(
            f"Two of the series have the same number ({numbers}), so they would share their random numbers. Give each "
            "its own, Sequence.from_values(..., number=...), or none any."
        )
    return [
        eqx.tree_at(lambda s: s.number, sequence, jax.device_put(np.int32(number)))
        for sequence, number in zip(sequences, numbers, strict=True)
    ]


def stack(sequences: Listing[Sequence]) -> Sequence:
    """A batch of ragged series: each padded to the longest, with one more axis in front.

    Series that all have the default number are numbered by their place, so that each has random numbers of its own;
    otherwise their numbers must differ.
    """
    sequences = numbered(sequences)
    ragged = len({sequence.steps for sequence in sequences}) > 1 or any(s.length is not None for s in sequences)
    columns = max((0 if s.observed is None else s.observed.shape[1] for s in sequences), default=0)
    longest = max(sequence.steps for sequence in sequences)

    def alike(sequence: Sequence) -> Sequence:
        if columns:
            mask = True if sequence.observed is None else np.asarray(sequence.observed)
            mask = np.broadcast_to(mask, (sequence.steps, columns))
            sequence = eqx.tree_at(lambda s: s.observed, sequence, mask, is_leaf=lambda x: x is None)
        return sequence.pad(longest) if ragged else sequence

    return jax.tree.map(lambda *leaves: jax.device_put(np.stack(leaves)), *map(alike, sequences))
