"""One time series as the samplers read it: values, mask, inputs, length and id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from mcfo.types import Context, HostArray
from mcfo.validation import read_index, read_mask, read_table, require_finite

_HARMLESS = 0.5


def _index(value: Any) -> Any:
    return np.asarray(value, np.int32)


class Frame(eqx.Module):
    """One step of one series.

    It has the `series_id` and the `time` of the step, because random numbers belong to a series and a step: windows,
    padding and the order in a batch then change nothing.
    """

    observation: Shaped[HostArray, "*steps dimensions"]
    observed: Bool[HostArray, "*steps #dimensions"] | None
    inputs: Float[HostArray, "*steps inputs"] | None
    context: Context
    present: Bool[Array, "*steps"] | None
    time: Int[Array, "*steps"]
    series_id: Int[Array, "*steps"]

    def unless_padding(self, new: Any, old: Any) -> Any:
        """Return `new` where the step exists, `old` where it is padding."""
        if self.present is None:
            return new
        present = self.present
        return jax.tree.map(lambda new, old: jnp.where(present, new, old), new, old)


class Series(eqx.Module):
    """A series x_1:T with one mask for each step and observed dimension, and optional inputs u_1:T.

    `observed` is None where nothing is missing, and has one column where steps are missing whole (which any emission
    can leave out, while single dimensions can only be left out of one that factorizes). `length` is None where
    nothing is padding. A *missing* step is one of the model's steps (the latent moves on unseen); a *padded* step does
    not exist: no particle moves, nothing is weighted or resampled. `series_id` is its number in a data set, and
    `start` the step of the first row in that series: random numbers depend on both.

    What was read stays in float64 on the host until a compiled program takes it: JAX then converts it to the precision
    of the session, and exact answers, which are computed in float64, see what the file has.

    Build one with [`Series.from_values`][], which checks the data. A batch is a `Series` whose arrays have a leading
    axis over series: see [`stack`][].
    """

    observations: Shaped[HostArray, "steps dimensions"]
    observed: Bool[HostArray, "steps #dimensions"] | None
    inputs: Float[HostArray, "steps inputs"] | None
    length: Int[HostArray, ""] | None
    series_id: Int[HostArray, ""]
    start: Int[HostArray, ""]

    @classmethod
    def from_values(
        cls,
        values: Any,
        *,
        observed: Any = None,
        inputs: Any = None,
        series_id: int = 0,
    ) -> Series:
        """Read and check one series.

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
            inputs = read_table(inputs, "inputs").astype(np.float64)
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
            mask = None if mask.all() else np.ascontiguousarray(mask[:, :1] if whole else mask)
        return cls(
            observations=observations,
            observed=mask,
            inputs=inputs,
            length=None,
            series_id=_index(read_index(series_id, "series_id")),
            start=_index(0),
        )

    @property
    def steps(self) -> int:
        """The number of steps, padding included; it is static."""
        return self.observations.shape[-2]

    def pad(self, steps: int) -> Series:
        """Return the series with padding up to `steps`; no likelihood changes."""
        extra = steps - self.steps
        if extra < 0:
            raise ValueError(f"Cannot pad a series of {self.steps} steps to {steps}. Ask for at least {self.steps}.")
        length = _index(self.steps) if self.length is None else self.length

        def lengthen(array):
            # In numpy: JAX would compile a program for every length.
            return None if array is None else np.pad(np.asarray(array), ((0, extra), (0, 0)))

        return Series(
            observations=lengthen(self.observations),  # pyright: ignore[reportArgumentType]
            observed=lengthen(self.observed),
            inputs=lengthen(self.inputs),
            length=length,
            series_id=self.series_id,
            start=self.start,
        )

    def window(self, start: int, end: int) -> Series:
        """Return the steps from `start` up to `end`, with the random numbers that they have in the whole series."""
        if not 0 <= start < end <= self.steps:
            raise ValueError(f"There is no window from {start} to {end} in a series of {self.steps} steps.")

        def cut(array):
            return None if array is None else array[start:end]

        return Series(
            observations=self.observations[start:end],
            observed=cut(self.observed),
            inputs=cut(self.inputs),
            length=None if self.length is None else _index(np.clip(np.asarray(self.length) - start, 0, end - start)),
            series_id=self.series_id,
            start=_index(np.asarray(self.start) + start),
        )

    def mask(self) -> Bool[Array, "steps dimensions"]:
        """Return True where a value was observed, with one flag for each step and dimension."""
        known = jnp.ones((1, 1), bool) if self.observed is None else self.observed
        present = self.present()
        if present is not None:
            known = known & present[:, None]
        return jnp.broadcast_to(known, self.observations.shape)

    def values(self) -> Float[np.ndarray, "present dimensions"]:
        """The observations in float64, with NaN in place of what is missing and without padding."""
        # In numpy: JAX would compile a program for every length.
        steps = self.steps if self.length is None else int(self.length)
        observed = True if self.observed is None else np.asarray(self.observed)
        return np.where(observed, np.asarray(self.observations, np.float64), np.nan)[:steps]

    def present(self) -> Bool[Array, " steps"] | None:
        """Return True at the steps that exist; None if all do."""
        return None if self.length is None else jnp.arange(self.steps) < self.length

    def sanitized(self) -> Series:
        """Return the series with a harmless value at every masked or padded index.

        Masked terms are multiplied out of likelihoods by a `where`, whose gradient is still NaN if the branch not
        taken is. So masked values should be ones that the emission accepts: the first observed one of the same
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
            # Not zero: inputs are often time differences, whose square root multiplies a scale.
            inputs = jnp.where(present[:, None], self.inputs, self.inputs[0])
            clean = eqx.tree_at(lambda s: s.inputs, clean, inputs)
        return clean

    def frames(self, contexts: Context) -> Frame:
        """Return all steps as one [`Frame`][] with a leading time axis, for `jax.lax.scan`."""
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
    """Check that the series fit in one batch, and return them, each with its own `series_id`.

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
        eqx.tree_at(lambda s: s.series_id, series, _index(series_id))
        for series, series_id in zip(series_list, ids, strict=True)
    ]


def stack(series_list: Sequence[Series]) -> Series:
    """Return a batch of ragged series, each padded to the longest, with a leading axis over series.

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

    return jax.tree.map(lambda *leaves: np.stack(leaves), *map(alike, series_list))
