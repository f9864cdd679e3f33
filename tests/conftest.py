"""Tests run in float64 unless they say otherwise, so that exact statements can be tested exactly."""

import os

# Most of the time goes into compiling hundreds of small programs: at this level it takes half as long.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=1"

import jax

jax.config.update("jax_enable_x64", True)
