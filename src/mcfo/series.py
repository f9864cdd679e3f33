"""One time series as the samplers read it: values, mask, inputs, length and id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from mcfo.types import Context
from mcfo.validation import float_dtype, read_index, read_mask, read_table, require_finite

_HARMLESS = 0.5


class Frame(eqx.Module):
    """One step of one series.

    It knows whose step it is (`series_id`) and which (`time`), because random numbers belong to a series and a
    step: windows, padding and the order in a batch then change nothing.
    """

    observation: Shaped[Array, "*steps dimensions"]
    observed: Bool[Array, "*steps #dimensions"] | None
    inputs: Float[Array, "*steps inputs"] | None
    context: Context
    present: Bool[Array, "*steps"] | None
    time: Int[Array, "*steps"]
    series_id: Int[Array, "*steps"]

    def unless_padding(self, new: Any, old: Any) -> Any:
        """`new` where the step exists, `old` where it is padding."""
        if self.present is None:
            return new
        present = self.present
        return jax.tree.map(lambda new, old: jnp.where(present, new, old), new, old)


class Series(eqx.Module):
    """A series x_1:T with one mask for each step and observed dimension, and optional inputs u_1:T.

    `observed` is None where nothing is missing, and has one column where steps are missing whole (which any emission
    can leave out, while single dimensions can only be left out of one that factorizes). `length` is None where
    nothing is padding. A *missing* step is one of the model's steps (the latent moves on unseen); a *padded* step does
    not exist: no particle moves, nothing is weighted or resampled. `series_id` says which series of a data set it is,
    `start` at which step of that series the first row stands: random numbers follow both.

    Make one with [`Series.from_values`][], which checks the data. A batch is a `Series` whose arrays have
    one more axis in front: see [`stack`][].
    """

    observations: Shaped[Array, "steps dimensions"]
    observed: Bool[Array, "steps #dimensions"] | None
    inputs: Float[Array, "steps inputs"] | None
    length: Int[Array, ""] | None
    series_id: Int[Array, ""]
    start: Int[Array, ""]

    @classmethod
    def from_values(
        cls,
        values: Any,
        *,
        observed: Any = None,
        inputs: Any = None,
        series_id: int = 0,
    ) -> Series:
        """Reads and checks one series.

        **Arguments:**

        - `values`: shape (steps, dimensions), or (steps,) for one dimension. NaN means missing.
        - `observed`: True where a value was observed; shape (steps, dimensions) or (steps,). Values are ignored
          where it is False. Whatever is NaN is missing as well.
        - `inputs`: exogenous inputs, shape (steps, inputs) or (steps,); every one must be finite.
        - `series_id`: which of a data set's series this is. Random numbers follow it.
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
            series_id=jax.device_put(np.int32(read_index(series_id, "series_id"))),
            start=jax.device_put(np.int32(0)),
        )

    @property
    def steps(self) -> int:
        """The number of steps, padding included; it is static."""
        return self.observations.shape[-2]

    def pad(self, steps: int) -> Series:
        """The same series followed by padding up to `steps`; no likelihood changes."""
        extra = steps - self.steps
        if extra < 0:
            raise ValueError(f"Cannot pad a series of {self.steps} steps to {steps}. Ask for at least {self.steps}.")
        length = jnp.asarray(self.steps, jnp.int32) if self.length is None else self.length

        def lengthen(array):
            # In numpy: JAX would compile a program for every length.
            return None if array is None else jnp.asarray(np.pad(np.asarray(array), ((0, extra), (0, 0))))

        return Series(
            observations=lengthen(self.observations),  # pyright: ignore[reportArgumentType]
            observed=lengthen(self.observed),
            inputs=lengthen(self.inputs),
            length=length,
            series_id=self.series_id,
            start=self.start,
        )

    def window(self, begin: int, end: int) -> Series:
        """The steps from `begin` up to `end`, with the random numbers that they have in the whole series."""
        if not 0 <= begin < end <= self.steps:
            raise ValueError(f"There is no window from {begin} to {end} in a series of {self.steps} steps.")

        def cut(array):
            return None if array is None else array[begin:end]

        return Series(
            observations=self.observations[begin:end],
            observed=cut(self.observed),
            inputs=cut(self.inputs),
            length=None if self.length is None else jnp.clip(self.length - begin, 0, end - begin),
            series_id=self.series_id,
            start=self.start + begin,
        )

    def mask(self) -> Bool[Array, "steps dimensions"]:
        """True where a value was observed, one flag for each step and dimension, whatever form `observed` has."""
        known = jnp.ones((1, 1), bool) if self.observed is None else self.observed
        present = self.present()
        if present is not None:
            known = known & present[:, None]
        return jnp.broadcast_to(known, self.observations.shape)

    def values(self) -> np.ndarray:
        """The observations on the host, (steps, dimensions): NaN where one is missing, without the padding."""
        steps = self.steps if self.length is None else int(self.length)
        return np.where(np.asarray(self.mask()), np.asarray(self.observations, float), np.nan)[:steps]

    def present(self) -> Bool[Array, " steps"] | None:
        """True at the steps that exist; None if all do."""
        return None if self.length is None else jnp.arange(self.steps) < self.length

    def sanitized(self) -> Series:
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
            series_id=jnp.broadcast_to(self.series_id, (steps,)),
        )


def with_ids(series_list: Sequence[Series]) -> list[Series]:
    """The same series, checked to fit in one batch, each with its own `series_id`.

    Where all have the default id, they get their index in the list; otherwise their ids must differ.
    """
    if not series_list:
        raise ValueError("Cannot stack an empty list of series. Give at least one.")
    dimensions = {series.observations.shape[1] for series in series_list}
    if len(dimensions) > 1:
        raise ValueError(
            f"The series have different numbers of observed dimensions: {sorted(dimensions)}. Give every series "
            "the same columns, with NaN in those that it lacks."
        )
    if len({series.inputs is None for series in series_list}) > 1:
        raise ValueError("Some series have inputs and others have none. Give inputs to all of them, or to none.")
    ids = [int(series.series_id) for series in series_list]
    if not any(ids):
        ids = list(range(len(series_list)))
    if len(set(ids)) < len(ids):
        raise ValueError(
            f"Two of the series have the same series_id ({ids}), so they would share their random numbers. Give each "
            "its own, Series.from_values(..., series_id=...), or none any."
        )
    return [
        eqx.tree_at(lambda s: s.series_id, series, jax.device_put(np.int32(series_id)))
        for series, series_id in zip(series_list, ids, strict=True)
    ]


def stack(series_list: Sequence[Series]) -> Series:
    """A batch of ragged series: each padded to the longest, with one more axis in front.

    Series that all have the default `series_id` get their index in the list, so that each has its own random numbers;
    otherwise their ids must differ.
    """
    series_list = with_ids(series_list)
    ragged = len({series.steps for series in series_list}) > 1 or any(s.length is not None for s in series_list)
    columns = max((0 if s.observed is None else s.observed.shape[1] for s in series_list), default=0)
    longest = max(series.steps for series in series_list)

    def alike(series: Series) -> Series:
        if columns:
            mask = True if series.observed is None else np.asarray(series.observed)
            mask = np.broadcast_to(mask, (series.steps, columns))
            series = eqx.tree_at(lambda s: s.observed, series, mask, is_leaf=lambda x: x is None)
        return series.pad(longest) if ragged else series

    return jax.tree.map(lambda *leaves: jax.device_put(np.stack(leaves)), *map(alike, series_list))
