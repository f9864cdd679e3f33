"""Clusters of the steps of series, from which regimes are initialized."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

_WINDOW = 7
"""Steps over which neighbors are averaged: regimes last, single values scatter."""
_ROUNDS = 50
_REFINEMENTS = 10
_MOST_STEPS = 50_000
"""The most steps that refinements go through in all: they are a loop in Python."""


class Clusters(NamedTuple):
    """The cluster of each step of the pooled series, and the probabilities of going from one to another."""

    labels: np.ndarray
    transition: np.ndarray

    def means(self, values: np.ndarray) -> np.ndarray:
        """Return the mean of each column in each cluster; a quantile of all values where a cluster has none."""
        levels = (np.arange(len(self.transition)) + 0.5) / len(self.transition)
        return self._of_each(values, np.nanmean, 1, np.nanquantile(values, levels, axis=0))

    def deviations(self, values: np.ndarray) -> np.ndarray:
        """Return the standard deviations; those of all values where a cluster has fewer than three."""
        return self._of_each(values, np.nanstd, 3, np.tile(np.nanstd(values, axis=0), (len(self.transition), 1)))

    def _of_each(
        self, values: np.ndarray, statistic: Callable[..., np.ndarray], least: int, otherwise: np.ndarray
    ) -> np.ndarray:
        result = otherwise.copy()
        for index in range(len(result)):
            own = values[self.labels == index]
            enough = np.sum(~np.isnan(own), axis=0) >= least
            if enough.any():
                result[index, enough] = statistic(own[:, enough], axis=0)
        return result


def cluster(parts: list[np.ndarray], count: int, stay: float, *, flat: bool = False) -> Clusters:
    """Cluster the steps of series by k-means.

    Steps are compared by their values, by the averages of their neighborhoods, and by how far the neighborhoods
    scatter. Each of these three is refined: the steps are assigned anew by a Gaussian hidden Markov model with the
    moments of the clusters. The clusters are chosen in which that model explains the values best.

    **Arguments:**

    - `parts`: the values of each series, (steps, columns), NaN where they are missing.
    - `stay`: the probability of staying before anything is counted, with the weight of ten steps.
    - `flat`: compare by the averages alone, for indicators of categories.
    """
    largest = np.nanmax(np.abs(np.concatenate(parts)), initial=0.0) or 1.0
    scaled = [part / largest for part in parts]
    pooled = np.concatenate(scaled)
    mean, scale = np.nanmean(pooled, axis=0), np.nanstd(pooled, axis=0)
    standard = [(part - mean) / np.where(scale > 0, scale, 1.0) for part in scaled]
    features = [[_smoothed(part) for part in standard]]
    if not flat:
        features += [standard, [np.log(_smoothed(part**2) + 0.01) for part in standard]]
    found = []
    for each in features:
        labels = _k_means(np.nan_to_num(np.concatenate(each)), count)
        split = np.split(labels, np.cumsum([len(part) for part in parts])[:-1])
        clusters = Clusters(labels, _transition(split, count, stay))
        # Indicators of categories are not Gaussian, and neighborhoods have found what there is.
        for _ in range(0 if flat else min(_REFINEMENTS, _MOST_STEPS // len(labels))):
            _, split = _decoded(standard, clusters)
            clusters = Clusters(np.concatenate(split), _transition(split, count, stay))
        found.append((_decoded(standard, clusters)[0], clusters))
    return max(found, key=lambda one: one[0])[1]


def _smoothed(values: np.ndarray) -> np.ndarray:
    """Return the mean of what is known in a centered window."""
    known, ones = ~np.isnan(values), np.ones(min(_WINDOW, len(values)))

    def sums(table: np.ndarray) -> np.ndarray:
        return np.stack([np.convolve(column, ones, mode="same") for column in table.T], axis=1)

    count = sums(known.astype(float))
    return np.where(count > 0.5, sums(np.where(known, values, 0.0)) / np.maximum(count, 1.0), 0.0)


def _k_means(points: np.ndarray, count: int) -> np.ndarray:
    """Return the cluster of each point, from centers at quantiles along the direction of largest variance."""
    centered = points - points.mean(axis=0)
    direction = np.linalg.eigh(centered.T @ centered)[1][:, -1]
    # The direction has no sign of its own; clusters ascend in the first column.
    along = centered @ (direction * np.sign(direction[np.argmax(np.abs(direction))]))
    order = np.argsort(along, kind="stable")
    labels = np.empty(len(points), int)
    labels[order] = np.arange(len(points)) * count // len(points)
    for _ in range(_ROUNDS):
        present = np.unique(labels)
        centers = np.stack([points[labels == index].mean(axis=0) for index in present])
        distances = ((points[:, None] - centers) ** 2).sum(axis=-1)
        nearest = present[np.argmin(distances, axis=1)]
        if (nearest == labels).all():
            break
        labels = nearest
    return labels


def _transition(labels: list[np.ndarray], count: int, stay: float) -> np.ndarray:
    """Return transition probabilities from counts, and from ten steps of a chain that stays with probability `stay`."""
    if count == 1:
        return np.ones((1, 1))
    counts = np.full((count, count), 10 * (1 - stay) / (count - 1))
    np.fill_diagonal(counts, 10 * stay)
    for own in labels:
        np.add.at(counts, (own[:-1], own[1:]), 1.0)
    return counts / counts.sum(axis=1, keepdims=True)


def _decoded(parts: list[np.ndarray], clusters: Clusters) -> tuple[float, list[np.ndarray]]:
    """Return the log-likelihood of a Gaussian hidden Markov model with the moments of the clusters, and the most
    probable cluster of each step given its whole series."""
    pooled = np.concatenate(parts)
    means, deviations = clusters.means(pooled), np.maximum(clusters.deviations(pooled), 0.1)
    total, labels = 0.0, []
    for part in parts:
        terms = -0.5 * ((part[:, None] - means) / deviations) ** 2 - np.log(deviations)
        log_densities = np.nansum(terms, axis=-1)
        peaks = log_densities.max(axis=1)
        densities = np.exp(log_densities - peaks[:, None])
        filtered = np.empty_like(densities)
        state = np.full(len(means), 1 / len(means))
        for step, density in enumerate(densities):
            state = (state @ clusters.transition) * density
            total += peaks[step] + np.log(state.sum())
            state = filtered[step] = state / state.sum()
        future = np.ones(len(means))
        smoothed = np.empty_like(densities)
        for step in range(len(part) - 1, -1, -1):
            smoothed[step] = filtered[step] * future
            future = clusters.transition @ (densities[step] * future)
            future = future / future.sum()
        labels.append(np.argmax(smoothed, axis=1))
    return float(total), labels
