"""Simulated series with two regimes, as a user would have them."""

import numpy as np

CALM_TO_WILD, WILD_TO_CALM = 0.04, 0.06


def regimes(steps=200, seed=0):
    """A path of two regimes that last."""
    generator = np.random.default_rng(seed)
    path = [0]
    for _ in range(steps - 1):
        leaves = generator.uniform() < (CALM_TO_WILD if path[-1] == 0 else WILD_TO_CALM)
        path.append(1 - path[-1] if leaves else path[-1])
    return np.array(path), generator


def levels(steps=200, seed=0):
    """Regimes that differ in their mean and in their scatter."""
    path, generator = regimes(steps, seed)
    return path, np.where(path == 0, 1.0, 3.0) + generator.normal(size=steps) * np.where(path == 0, 0.5, 1.0)


def volatilities(steps=200, seed=0):
    """Regimes that differ in nothing but their scatter."""
    path, generator = regimes(steps, seed)
    return path, generator.normal(size=steps) * np.where(path == 0, 0.5, 2.5)


def counts(steps=200, seed=0):
    """Regimes of counts, with a gap."""
    path, generator = regimes(steps, seed)
    values = generator.poisson(np.where(path == 0, 1.0, 6.0)).astype(float)
    values[10:13] = np.nan
    return path, values


def categories(steps=200, seed=0):
    """Regimes of three categories."""
    path, generator = regimes(steps, seed)
    table = np.array([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]])
    return path, np.array([generator.choice(3, p=table[regime]) for regime in path])
