"""The VRNN's training step as a straightforward PyTorch loop. Runs in an environment that has PyTorch, not in ours.

    python benchmarks/peers/torch_vrnn.py start.npz

The file holds the networks' arrays by their names, the piano-rolls, and the random numbers of one run. Lines on
standard input, `objective series threads`, are answered with the seconds of one update, so that benchmarks/vrnn.py
can interleave it with its own. A line `check objective file.npz` is answered when the log-evidence of each roll and the
gradients, at the given random numbers, stand in the file.
"""

import itertools
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, relu, softplus

PARTICLES = 10
RAISED = 0.25


class Layers(nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(before, after) for before, after in itertools.pairwise(sizes))

    def forward(self, values):
        *hidden, last = self.layers
        for layer in hidden:
            values = relu(layer(values))
        return last(values)


class Model(nn.Module):
    def __init__(self, keys, latent, hidden, units):
        super().__init__()
        self.observation_encoder = Layers(keys, units, units)
        self.latent_encoder = Layers(latent, units, units)
        self.cell = nn.LSTMCell(2 * units, hidden)
        self.prior_network = Layers(hidden, units, 2 * latent)
        self.emission_network = Layers(hidden + units, units, keys)
        self.register_buffer("center", torch.zeros(keys))


class Proposal(nn.Module):
    def __init__(self, keys, latent, hidden, units):
        super().__init__()
        self.encoder = Layers(keys, units, units)
        self.network = Layers(hidden + units, units, 2 * latent)
        self.register_buffer("center", torch.zeros(keys))


class Networks(nn.Module):
    def __init__(self, keys, latent=64, hidden=64, units=64):
        super().__init__()
        self.model = Model(keys, latent, hidden, units)
        self.proposal = Proposal(keys, latent, hidden, units)

    def read(self, arrays):
        """Takes the arrays of ours, whose LSTM has one bias where PyTorch's has two."""
        given = {name: torch.tensor(arrays[name]) for name in arrays.files if name.startswith(("model.", "proposal."))}
        given["model.cell.bias_ih"] = given.pop("model.cell.bias")
        given["model.cell.bias_hh"] = torch.zeros_like(given["model.cell.bias_ih"])
        self.load_state_dict(given)


def normal(outputs, around=0.0):
    mean, raw = outputs.chunk(2, dim=-1)
    return torch.distributions.Normal(around + mean, softplus(raw + RAISED), validate_args=False)


def resample(weights, offset):
    """Systematic, for each series."""
    particles = weights.shape[1]
    grid = (torch.arange(particles) + offset[:, None]) / particles
    return torch.searchsorted(weights.cumsum(1), grid).clamp(max=particles - 1)


def inherit(values, ancestors):
    return values.gather(1, ancestors[..., None].expand(-1, -1, values.shape[-1]))


def loss(networks, rolls, objective, noise=None, offsets=None):
    """Minus the surrogate of MCFO-SMC or AESMC, and the log-evidence of each roll."""
    model, proposal = networks.model, networks.proposal
    series_list, steps, _ = rolls.shape
    through = objective == "aesmc"
    seen = relu(model.observation_encoder(rolls - model.center))
    features = relu(proposal.encoder(rolls - proposal.center))
    output = torch.zeros(series_list, PARTICLES, model.cell.hidden_size)
    cell = torch.zeros_like(output)
    total, log_evidence, weights = 0.0, 0.0, None
    for t in range(steps):
        if weights is not None:
            ancestors = resample(weights, torch.rand(series_list) if offsets is None else offsets[t])
            output, cell = inherit(output, ancestors), inherit(cell, ancestors)
        prior = normal(model.prior_network(output))
        # MCFO's proposal reads the past, and the prior, as numbers.
        past, around = (output, prior.mean) if through else (output.detach(), prior.mean.detach())
        read = torch.cat([past, features[:, t, None].expand(-1, PARTICLES, -1)], -1)
        law = normal(proposal.network(read), around)
        latents = law.rsample() if noise is None else law.mean + law.stddev * noise[t]
        encoded = relu(model.latent_encoder(latents))
        logits = model.emission_network(torch.cat([output, encoded], -1))
        observed = rolls[:, t, None].expand_as(logits)
        emission = -binary_cross_entropy_with_logits(logits, observed, reduction="none").sum(-1)
        log_weights = emission + (prior.log_prob(latents) - law.log_prob(latents)).sum(-1)
        increment = torch.logsumexp(log_weights, 1) - np.log(PARTICLES)
        weights = torch.softmax(log_weights.detach(), 1)
        total = total + (increment if through else (weights * log_weights).sum(1))
        log_evidence = log_evidence + increment.detach()
        if not through:
            encoded = relu(model.latent_encoder(latents.detach()))
        entered = torch.cat([seen[:, t, None].expand(-1, PARTICLES, -1), encoded], -1).flatten(0, 1)
        output, cell = model.cell(entered, (output.flatten(0, 1), cell.flatten(0, 1)))
        output, cell = (values.unflatten(0, (series_list, PARTICLES)) for values in (output, cell))
    return -total.mean(), log_evidence


def update(networks, optimizer, rolls, objective):
    """A training step."""
    optimizer.zero_grad()
    loss(networks, rolls, objective)[0].backward()
    optimizer.step()


def check(networks, arrays, objective, file):
    networks.zero_grad()
    noise, offsets = torch.tensor(arrays["noise"]), torch.tensor(arrays["offsets"])
    steps, series_list = offsets.shape
    rolls = torch.tensor(arrays["rolls"][:series_list, :steps])
    value, log_evidence = loss(networks, rolls, objective, noise, offsets)
    value.backward()
    gradients = {name: one.grad.numpy() for name, one in networks.named_parameters()}
    gradients["model.cell.bias"] = gradients.pop("model.cell.bias_ih")
    gradients.pop("model.cell.bias_hh")
    np.savez(file, log_evidence=log_evidence.numpy(), **gradients)


def main():
    torch.manual_seed(0)
    arrays = np.load(sys.argv[1])
    rolls = torch.tensor(arrays["rolls"])
    networks = Networks(rolls.shape[-1])
    networks.read(arrays)
    optimizer = torch.optim.Adam(networks.parameters(), lr=1e-3)
    for line in sys.stdin:
        if line.startswith("check"):
            check(networks, arrays, *line.split()[1:])
            print("checked", flush=True)
            continue
        objective, series_list, threads = line.split()
        torch.set_num_threads(int(threads))
        begun = time.perf_counter()
        update(networks, optimizer, rolls[: int(series_list)], objective)
        print(time.perf_counter() - begun, flush=True)


if __name__ == "__main__":
    main()
