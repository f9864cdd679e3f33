"""Statistical comparison of means. With 5 standard errors a right estimator fails once in 1.7 million tests."""

import numpy as np


def standard_errors(samples, expected):
    """How many standard errors the mean of independent samples (first axis) is away."""
    samples = np.asarray(samples)
    error = samples.std(axis=0, ddof=1) / len(samples) ** 0.5
    return np.abs(samples.mean(axis=0) - np.asarray(expected)) / error


def assert_mean(samples, expected, *, sigmas=5.0):
    """The mean of independent samples (first axis) is the expected one, in standard errors."""
    worst = np.max(standard_errors(samples, expected))
    assert worst < sigmas, f"{worst:.1f} standard errors from {expected}"
