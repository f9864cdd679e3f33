"""Learning steps of the scalar linear Gaussian model as straightforward PyTorch loops: MCFO-SMC, MCFO-PIMH, FIVO."""

import math

import torch
from serving import COEFFICIENT
from torch import nn

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class Model(nn.Module):
    """z_1 ~ N(m, P), z_t ~ N(a z_t-1, Q), x_t ~ N(c z_t, R); scales as logarithms."""

    def __init__(self):
        super().__init__()
        self.initial_mean, self.initial_scale = _number(0.0), _number(0.0)
        self.coefficient, self.transition_scale = _number(COEFFICIENT), _number(0.0)
        self.loading, self.emission_scale = _number(1.0), _number(0.0)

    def prior(self, before):
        if before is None:
            return self.initial_mean, self.initial_scale
        return self.coefficient * before, self.transition_scale


class Proposal(nn.Module):
    """Affine in the last latent and the observation; begins where it is optimal."""

    def __init__(self):
        super().__init__()
        self.initial_weight, self.initial_offset, self.initial_scale = _number(0.5), _number(0.0), _number(_HALF)
        self.latent_weight, self.weight = _number(0.5 * COEFFICIENT), _number(0.5)
        self.offset, self.scale = _number(0.0), _number(_HALF)

    def law(self, before, value):
        if before is None:
            return self.initial_weight * value + self.initial_offset, self.initial_scale
        return self.latent_weight * before + self.weight * value + self.offset, self.scale


_HALF = 0.5 * math.log(0.5)


def _number(value):
    return nn.Parameter(torch.tensor(value))


def log_normal(value, mean, log_scale):
    return -0.5 * ((value - mean) * torch.exp(-log_scale)) ** 2 - log_scale - HALF_LOG_2PI


def resample(weights):
    """Systematic, for each series."""
    particles = weights.shape[1]
    grid = (torch.arange(particles) + torch.rand(len(weights), 1)) / particles
    return torch.searchsorted(weights.cumsum(1), grid).clamp(max=particles - 1)


def extend(model, proposal, before, value, shape):
    """New latents and their log-weights."""
    mean, scale = proposal.law(before, value)
    latents = mean + torch.exp(scale) * torch.randn(shape)
    log_joint = log_normal(latents, *model.prior(before)) + log_normal(
        value, model.loading * latents, model.emission_scale
    )
    return latents, log_joint - log_normal(latents, mean, scale)


def filter_(model, proposal, values, particles, *, through=False, history=None):
    """log p̂ of each series; gradients go `through` the histories, or they are numbers."""
    series_list, steps = values.shape
    total, weights, latents = 0.0, None, None
    for step in range(steps):
        before = None if weights is None else latents.gather(1, resample(weights))
        new, log_weights = extend(model, proposal, before, values[:, step, None], (series_list, particles))
        total = total + torch.logsumexp(log_weights, 1) - math.log(particles)
        weights = torch.softmax(log_weights.detach(), 1)
        latents = new if through else new.detach()
        if history is not None:
            history.append((before, latents, weights))
    return total


def smc(model, proposal, values, particles, sweeps):
    bounds = filter_(model, proposal, values, particles)
    return -bounds.mean(), bounds.sum()


def fivo(model, proposal, values, particles, sweeps):
    bounds = filter_(model, proposal, values, particles, through=True)
    return -bounds.mean(), bounds.sum()


def pimh(model, proposal, values, particles, sweeps):
    """All sweeps side by side without gradients; then one pass back over all steps of those that were accepted."""
    series_list = len(values)
    history = []
    with torch.no_grad():
        repeated = values.repeat_interleave(sweeps + 1, 0)
        bounds = filter_(model, proposal, repeated, particles, history=history).view(series_list, sweeps + 1)
        rows = torch.arange(series_list)
        current = torch.zeros(series_list, dtype=torch.long)
        for sweep in range(1, sweeps + 1):
            accepted = torch.rand(series_list) < torch.exp(bounds[:, sweep] - bounds[rows, current])
            current = torch.where(accepted, torch.full_like(current, sweep), current)
        chosen = rows * (sweeps + 1) + current
    _, first, first_weights = (None if part is None else part[chosen] for part in history[0])
    before, latents, weights = (
        torch.stack([part[chosen] for part in parts]) for parts in zip(*history[1:], strict=True)
    )
    loss = 0.0
    for past, z, w, value in (
        (None, first, first_weights, values[:, :1]),
        (before, latents, weights, values.T[1:, :, None]),
    ):
        log_joint = log_normal(z, *model.prior(past)) + log_normal(value, model.loading * z, model.emission_scale)
        loss = loss - (w * log_joint).sum()
        # What the proposal learns from is drawn anew from the accepted histories, on a model that is a number.
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        fresh = torch.logsumexp(extend(model, proposal, past, value, z.shape)[1], -1)
        for parameter in model.parameters():
            parameter.requires_grad_(True)
        loss = loss - fresh.sum()
    return loss / series_list, bounds.mean(1).sum()


OBJECTIVES = {"mcfo-smc": smc, "mcfo-pimh": pimh, "fivo": fivo}
