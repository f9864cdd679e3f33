"""The draws of a posterior: summaries, diagnostics, models, and NetCDF files that ArviZ opens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from mcfo.errors import InputError
from mcfo.inference.datasets import ENGINE, written_beside
from mcfo.learning.coordinates import Coordinates
from mcfo.learning.parameters import digest
from mcfo.learning.readable import readable_arrays
from mcfo.models.base import Model
from mcfo.precision import in_float64, settled
from mcfo.proposals.base import Proposal

if TYPE_CHECKING:
    import xarray

_LEVELS = (0.025, 0.5, 0.975)
R_HAT = 1.01
"""R-hat above which chains have not mixed. Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021)."""
FEWEST = 400
"""The effective sample size below which intervals are rough."""


class PosteriorRow(NamedTuple):
    """The marginal posterior of a parameter: moments, the central interval of 95 %, and how well the chains agree."""

    name: str
    mean: float
    sd: float
    low: float
    median: float
    high: float
    r_hat: float
    ess: float


class Posterior(NamedTuple):
    """Draws of the parameters of a model, given the series that it was sampled with.

    - `points`: the stored numbers, in the order of `coordinates.names`.
    - `log_densities`: log-prior plus log-likelihood of each draw; `log_likelihoods`: the likelihood's part, or p̂'s.
    - `acceptance`: the share of accepted steps of each chain.
    - `about`: how it was sampled, as it stands in the file.
    """

    coordinates: Coordinates
    proposal: Proposal
    points: Float[np.ndarray, "chains draws size"]
    log_densities: Float[np.ndarray, "chains draws"]
    log_likelihoods: Float[np.ndarray, "chains draws"]
    acceptance: Float[np.ndarray, " chains"]
    about: dict[str, Any]

    def values(self) -> Float[np.ndarray, "chains draws entries"]:
        """Return the draws of the parameters as people mean them, in the order of `coordinates.entries`."""
        return _values(self.coordinates, self.points)

    def summary(self) -> list[PosteriorRow]:
        """Return the marginal posterior of every parameter. R-hat compares the halves of the chains, ESS counts
        autocorrelation (numpyro.diagnostics)."""
        from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

        values, rows = np.asarray(self.values(), np.float64), []
        for index, entry in enumerate(self.coordinates.entries):
            own = values[:, :, index]
            low, median, high = np.quantile(own, _LEVELS).tolist()
            with np.errstate(divide="ignore", invalid="ignore"):
                r_hat, ess = float(split_gelman_rubin(own)), float(effective_sample_size(own))
            rows.append(
                PosteriorRow(entry.label, float(own.mean()), float(own.std(ddof=1)), low, median, high, r_hat, ess)
            )
        return rows

    @property
    def warnings(self) -> list[str]:
        """What to worry about, in sentences."""
        rows, texts = self.summary(), []
        apart = [row for row in rows if not row.r_hat <= R_HAT]
        if apart:
            worst = max(apart, key=lambda row: np.nan_to_num(row.r_hat, nan=np.inf))
            texts.append(
                f"The chains disagree: R-hat is {worst.r_hat:.3f} for {worst.name} (above {R_HAT} for {len(apart)} of "
                f"{len(rows)}). Take more draws, a longer warm-up, or a prior on what the data leave open."
            )
        few = min(rows, key=lambda row: np.nan_to_num(row.ess))
        if not few.ess >= FEWEST:
            texts.append(f"{few.name} has {few.ess:.0f} effective draws: its interval is rough. Take more draws.")
        variance = self.about.get("log_evidence_variance")
        if variance is not None and variance > 3:
            texts.append(
                f"log p̂ has a variance of {variance:.1f} with {self.about['particles']} particles, so that chains "
                "stick. Use more particles."
            )
        return texts

    def models(self, count: int) -> list[tuple[Model, Proposal]]:
        """Return the model of each of `count` draws, evenly spread over all chains, with its proposal."""
        flat = self.points.reshape(-1, self.points.shape[-1])
        chosen = np.linspace(0, len(flat) - 1, min(count, len(flat))).round().astype(int)
        models = [settled(_model(self.coordinates, flat[index])) for index in chosen]
        return [(model, self.proposal.following(model)) for model in models]

    def datasets(self) -> dict[str, xarray.Dataset]:
        """Return the groups of ArviZ: `posterior`, `sample_stats` and `unconstrained_posterior`."""
        import xarray

        chains, draws = self.points.shape[:2]
        along = {"chain": np.arange(chains), "draw": np.arange(draws)}

        def variables(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
            return {
                name: (("chain", "draw", *(f"{name}_dim_{axis}" for axis in range(array.ndim - 2))), array)
                for name, array in arrays.items()
            }

        stats = {"lp": self.log_densities, "log_likelihood": self.log_likelihoods}
        point = (("chain", "draw", "coordinate"), self.points)
        return {
            "posterior": xarray.Dataset(variables(self.arrays()), along),
            "sample_stats": xarray.Dataset(variables(stats), along),
            "unconstrained_posterior": xarray.Dataset(
                {"point": point}, {**along, "coordinate": list(self.coordinates.names)}
            ),
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the draws of every array of parameters by name, (chains, draws, ...)."""
        wanted = list(dict.fromkeys(entry.name for entry in self.coordinates.entries))
        arrays = _arrays(self.coordinates, self.points)
        return {name: np.asarray(arrays[name]) for name in wanted}

    def save(self, path: str | Path) -> None:
        """Write the draws as NetCDF, whose groups `arviz.from_netcdf` finds; the file is complete or absent."""
        import xarray

        attributes = {"kind": "posterior", "about": json.dumps(self.about), **_identity(self.coordinates)}
        acceptance = xarray.Dataset({"acceptance": ("chain", self.acceptance)}, attrs=attributes)
        with written_beside(Path(path)) as part:
            acceptance.to_netcdf(part, engine=ENGINE)
            for name, group in self.datasets().items():
                group.to_netcdf(part, group=name, mode="a", engine=ENGINE)


def load_posterior(path: str | Path, model: Model, proposal: Proposal, *, fixed: Sequence[str] = ()) -> Posterior:
    """Load the draws of a posterior of this model.

    **Arguments:**

    - `fixed`: the parameters that were not learned.
    """
    import xarray

    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no file {path}. Sample a posterior first: mcfo posterior RUN --data FILE.")
    try:
        with xarray.open_dataset(path, engine=ENGINE) as root:
            attributes = dict(root.attrs)
            if attributes.get("kind") != "posterior":
                raise ValueError(f"its kind is {attributes.get('kind')!r}")
            acceptance = root["acceptance"].values
        with xarray.open_dataset(path, engine=ENGINE, group="unconstrained_posterior") as group:
            points = group["point"].values
        with xarray.open_dataset(path, engine=ENGINE, group="sample_stats") as group:
            densities, likelihoods = group["lp"].values, group["log_likelihood"].values
        about = json.loads(attributes["about"])
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{path} is no posterior of mcfo: {_first_line(error)}. Give the draws.nc that mcfo posterior wrote."
        ) from error
    coordinates = Coordinates.build(model, fixed)
    own = _identity(coordinates)
    for what, text in own.items():
        if attributes.get(what) != text:
            raise InputError(
                f"{path} is a posterior of another model: its {what.replace('_', ' ')} are {attributes.get(what)}, but "
                f"those of this one are {text}. Give the posterior of this run: mcfo posterior RUN --data FILE."
            )
    return Posterior(coordinates, proposal, points, densities, likelihoods, acceptance, about)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__


def _identity(coordinates: Coordinates) -> dict[str, str]:
    """What tells one model from another: its learned numbers, and all that is not learned, rounded to float32."""
    numbers, others = eqx.partition(coordinates.rest, eqx.is_inexact_array)
    rest = eqx.combine(jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), numbers), others)
    return {
        "learned_numbers": ", ".join(coordinates.names),
        "fixed_values": f"{type(coordinates.rest).__name__} {digest(rest)[:12]}",
    }


@in_float64
@eqx.filter_jit
def _values(coordinates: Coordinates, points: Any) -> Any:
    return jax.vmap(jax.vmap(coordinates.values))(points)


@in_float64
@eqx.filter_jit
def _arrays(coordinates: Coordinates, points: Any) -> Any:
    return jax.vmap(jax.vmap(lambda vector: readable_arrays(coordinates.model(vector))))(points)


@in_float64
def _model(coordinates: Coordinates, vector: np.ndarray) -> Any:
    return coordinates.model(vector)
