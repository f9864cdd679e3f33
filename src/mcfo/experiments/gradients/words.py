"""Numbers, gaps and worst cases in words."""

from __future__ import annotations

from mcfo.experiments.gradients.samples import THETA
from mcfo.experiments.gradients.summary import ROUNDING, Estimate, Summary


def largest_count(summary: Summary, setting: str, method: str) -> int:
    """The largest K with which a method was run."""
    return summary.particles(setting, method, THETA[0])[-1]


def number(value: float, digits: int = 3) -> str:
    """Fixed digits for numbers of ordinary size; zero up to rounding is 0."""
    if abs(value) < ROUNDING:
        return "0"
    if abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.{digits}f}" if abs(value) >= 10**-digits else f"{value:.1e}"


def gap(found: Estimate) -> str:
    """The bias, and how many standard errors it is."""
    return f"{number(found.bias)} ({found.sigmas:.1f} s.e.)"


def theta_mean(summary: Summary, setting: str, method: str, particles: int) -> str:
    """The mean of the theta gradient."""
    values = [summary.at(setting, method, particles, name).mean for name in THETA]
    return f"({', '.join(number(value) for value in values)})"


def theta_exact(summary: Summary, setting: str, method: str, particles: int) -> str:
    """The exact score."""
    values = [summary.at(setting, method, particles, name).exact for name in THETA]
    return f"({', '.join(number(value) for value in values)})"


def worst(summary: Summary, setting: str, method: str, parameters: tuple[str, ...], particles: int | None = None):
    particles = particles or largest_count(summary, setting, method)
    parameter = summary.worst(setting, method, particles, parameters)
    assert parameter is not None
    return parameter, summary.at(setting, method, particles, parameter)


def worst_gap(
    summary: Summary, setting: str, method: str, parameters: tuple[str, ...], particles: int | None = None
) -> str:
    parameter, found = worst(summary, setting, method, parameters, particles)
    return f"{gap(found)} on {parameter}"
