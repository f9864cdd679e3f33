"""particles: Chopin's library on NumPy. One series at a time, in float64; it has no other way."""

import numpy as np
import particles
from particles import distributions, state_space_models
from serving import COEFFICIENT, Prepared, observations, serve


class LinearGaussian(state_space_models.StateSpaceModel):
    def PX0(self):
        return distributions.Normal()

    def PX(self, t, xp):
        return distributions.Normal(loc=COEFFICIENT * xp)

    def PY(self, t, xp, x):
        return distributions.Normal(loc=x)


def prepare(workload):
    values = observations(workload["series"], workload["steps"]).astype(np.float64)
    filters = [state_space_models.Bootstrap(ssm=LinearGaussian(), data=row) for row in values]

    def call(seed):
        np.random.seed(seed)  # noqa: NPY002, the library draws from the global generator
        total = 0.0
        for one in filters:
            # An effective sample size is always below this share: it resamples at every step.
            run = particles.SMC(
                fk=one, N=workload["particles"], resampling=workload["scheme"], ESSrmin=2.0, collect="off"
            )
            run.run()
            total += run.logLt
        return {"log_evidence": float(total)}

    return Prepared(call)


serve(prepare, "particles", "numpy", "numba")
