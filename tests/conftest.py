"""Tests run in float64 unless they say otherwise, so that exact statements can be tested exactly."""

import importlib.metadata
import os

# Most of the time goes into compiling hundreds of small programs: like this it takes a quarter as long. An unknown flag
# would end the process, so the second one is for the versions that are known to have it.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_backend_optimization_level=1"
    + (" --xla_cpu_use_fusion_emitters=false" if importlib.metadata.version("jaxlib").startswith("0.10.") else "")
)

import jax

jax.config.update("jax_enable_x64", True)
