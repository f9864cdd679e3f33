"""The pendulum's training step as a straightforward PyTorch loop."""

import itertools

import torch
from torch import nn

SERIES, STEPS, PIXELS, LATENT = 5, 20, 1024, 3


def mlp(*sizes):
    layers = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def normal(outputs):
    mean, raw = outputs.chunk(2, dim=-1)
    return torch.distributions.Normal(mean, nn.functional.softplus(raw) + 1e-3)


class Networks(nn.Module):
    def __init__(self):
        super().__init__()
        self.transition = mlp(LATENT, 64, 2 * LATENT)
        self.emission = mlp(LATENT, 16, 64, 512, 2048, PIXELS)
        self.encoder = nn.Sequential(mlp(PIXELS, 128, 32), nn.ReLU())
        self.first = mlp(32, 32, 2 * LATENT)
        self.step = mlp(32 + LATENT, 32, 2 * LATENT)
        self.initial = nn.Parameter(torch.cat([torch.zeros(LATENT), torch.full((LATENT,), 0.54)]))


def resample(weights):
    """Systematic, for each series."""
    particles = weights.shape[1]
    grid = (torch.arange(particles) + torch.rand(len(weights), 1)) / particles
    places = torch.searchsorted(weights.cumsum(1).contiguous(), grid.contiguous())
    return places.clamp(max=particles - 1)


def step(networks, frames, particles):
    """MCFO-SMC: histories and ancestors as numbers, one backward pass at the end."""
    features = networks.encoder(frames)
    loss = 0.0
    weights = latents = None
    for t in range(STEPS):
        seen = features[:, t, None].expand(-1, particles, -1)
        if t == 0:
            prior, proposal = normal(networks.initial), normal(networks.first(seen))
        else:
            chosen = resample(weights)[..., None].expand(-1, -1, LATENT)
            before = latents.gather(1, chosen)
            prior, proposal = normal(networks.transition(before)), normal(networks.step(torch.cat([before, seen], -1)))
        z = proposal.rsample()
        logits = networks.emission(z)
        observed = frames[:, t, None].expand_as(logits)
        emission = -nn.functional.binary_cross_entropy_with_logits(logits, observed, reduction="none").sum(-1)
        log_weights = emission + prior.log_prob(z).sum(-1) - proposal.log_prob(z).sum(-1)
        loss = loss - torch.logsumexp(log_weights, 1).mean()
        weights, latents = torch.softmax(log_weights.detach(), 1), z.detach()
    loss.backward()


def problem():
    """Networks, and videos of noise."""
    torch.manual_seed(0)
    return Networks(), (torch.rand(SERIES, STEPS, PIXELS) < 0.05).float()
