"""particles' PMMH on stochastic volatility: one chain, run by the environment of that package.

    python particles_posterior.py data.npz draws.npz PARTICLES ITERATIONS

Without draws.npz and the numbers, writes the returns of the pound against the dollar, 1997 and 1998, that the package
ships into data.npz.
"""

import sys
import time

import numpy as np
from particles import datasets, distributions, mcmc, state_space_models

PRIOR = distributions.StructDist(
    {
        "mu": distributions.Normal(loc=0.0, scale=2.0),
        "rho": distributions.Beta(9.0, 1.0),
        "sigma": distributions.Gamma(2.0, 4.0),
    }
)


def main(data, draws=None, particles=None, iterations=None):
    if draws is None:
        np.savez(data, returns=np.asarray(datasets.GBP_vs_USD_9798().data, float).ravel())
        return
    np.random.seed(0)  # noqa: NPY002, the library draws from the global generator
    returns = np.load(data)["returns"]
    start = np.array([(-1.0, 0.95, 0.2)], dtype=[("mu", float), ("rho", float), ("sigma", float)])
    chain = mcmc.PMMH(
        ssm_cls=state_space_models.StochVol,
        prior=PRIOR,
        data=returns,
        Nx=int(particles),
        niter=int(iterations),
        theta0=start,
        rw_cov=np.diag([0.1, 0.02, 0.05]) ** 2,
        adaptive=True,
    )
    begin = time.perf_counter()
    chain.run()
    seconds = time.perf_counter() - begin
    theta = chain.chain.theta
    np.savez(draws, seconds=seconds, **{name: theta[name] for name in ("mu", "rho", "sigma")})


main(*sys.argv[1:])
