"""Pyro's SMCFilter, eager PyTorch. It keeps no evidence, so the model adds it up; one series at a time."""

import math

import pyro
import torch
from pyro.distributions import Normal
from pyro.infer import SMCFilter
from serving import COEFFICIENT, THREADS, Prepared, observations, serve

torch.set_num_threads(THREADS)


class Model:
    """Resampled at every step, so the evidence grows by the mean of the emission's density."""

    def __init__(self, particles):
        self.particles, self.log_evidence = particles, 0.0

    def init(self, state, value):
        state["z"] = pyro.sample("z", Normal(torch.zeros(()), 1.0))
        self.emit(state, value)

    def step(self, state, value):
        state["z"] = pyro.sample("z", Normal(COEFFICIENT * state["z"], 1.0))
        self.emit(state, value)

    def emit(self, state, value):
        law = Normal(state["z"], 1.0)
        pyro.sample("x", law, obs=value)
        self.log_evidence += torch.logsumexp(law.log_prob(value), 0) - math.log(self.particles)


class Guide:
    """The model's own transition: a bootstrap filter."""

    def init(self, state, value):
        pyro.sample("z", Normal(torch.zeros(()), 1.0))

    def step(self, state, value):
        pyro.sample("z", Normal(COEFFICIENT * state["z"], 1.0))


def prepare(workload):
    values = torch.tensor(observations(workload["series"], workload["steps"]))
    particles = workload["particles"]
    pyro.enable_validation(False)

    @torch.no_grad()
    def call(seed):
        pyro.set_rng_seed(seed)
        total = 0.0
        for row in values:
            model = Model(particles)
            # An effective sample size below all of them: at every step.
            run = SMCFilter(model, Guide(), particles, max_plate_nesting=0, ess_threshold=1.0)
            run.init(row[0])
            for value in row[1:]:
                run.step(value)
            total += float(model.log_evidence)
        return {"log_evidence": total}

    return Prepared(call)


serve(prepare, "pyro-ppl", "torch")
