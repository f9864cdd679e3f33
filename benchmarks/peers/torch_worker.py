"""Our own straightforward loops in eager PyTorch, for the learning steps."""

import numpy as np
import torch
import torch_linear
import torch_pendulum
import torch_vrnn
from serving import THREADS, Prepared, observations, serve

torch.set_num_threads(THREADS)


def prepare_learn(workload):
    model, proposal = torch_linear.Model(), torch_linear.Proposal()
    values = torch.tensor(observations(workload["series"], workload["steps"]))
    objective = torch_linear.OBJECTIVES[workload["objective"]]

    def call(seed):
        torch.manual_seed(seed)
        for network in (model, proposal):
            network.zero_grad()
        loss, total = objective(model, proposal, values, workload["particles"], workload["sweeps"])
        loss.backward()
        return {
            "log_evidence": total.item(),
            "model gradient": model.coefficient.grad.item(),
            "proposal gradient": proposal.latent_weight.grad.item(),
        }

    return Prepared(call)


def prepare_pendulum(workload):
    networks, frames = torch_pendulum.problem()

    def call(seed):
        torch.manual_seed(seed)
        networks.zero_grad()
        torch_pendulum.step(networks, frames, workload["particles"])
        return {}

    return Prepared(call)


def prepare_vrnn(workload):
    rolls = torch.tensor(
        np.random.default_rng(0).random((workload["series"], workload["steps"], 88)) < 0.05, dtype=torch.float32
    )
    networks = torch_vrnn.Networks(rolls.shape[-1])
    optimizer = torch.optim.Adam(networks.parameters(), lr=1e-3)

    def call(seed):
        torch.manual_seed(seed)
        torch_vrnn.update(networks, optimizer, rolls, "mcfo")
        return {}

    return Prepared(call)


FAMILIES = {"learn": prepare_learn, "pendulum": prepare_pendulum, "vrnn": prepare_vrnn}

serve(lambda workload: FAMILIES[workload["family"]](workload), "torch", "numpy")
