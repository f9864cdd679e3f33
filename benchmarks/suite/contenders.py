"""Who is measured, and on what. To add a peer: its script and its requirements under `peers/`, and one entry here."""

from __future__ import annotations

from dataclasses import dataclass

from suite.workloads import FILTER, LEARN, PENDULUM, VRNN, Workload

OURS = "mcfo"
_WORTH_SHARING = 5000
"""Particles of a step of the linear model below which several devices take longer than one, by far."""


@dataclass(frozen=True)
class Contender:
    """A library in its environment.

    - `script`: its worker, in `peers/`.
    - `environment`: the name of its environment, and of its requirements; None for the project's own.
    - `families`, `schemes`: what it can do.
    - `variants`: numbers of threads (or devices) at which it is measured; the best one counts.
    - `slow`: particles times steps times series beyond which the short suite leaves it out.
    """

    name: str
    script: str
    environment: str | None
    families: tuple[str, ...]
    schemes: tuple[str, ...] = ("systematic",)
    variants: tuple[int, ...] = (1,)
    slow: float = float("inf")

    def can(self, workload: Workload) -> bool:
        """Whether it has what the row asks for."""
        return workload.family in self.families and workload.scheme in self.schemes

    def is_too_slow(self, workload: Workload, quick: bool) -> bool:
        return quick and workload.particles * workload.steps * workload.series > self.slow

    def variants_of(self, workload: Workload, cores: int) -> tuple[int, ...]:
        """Ours has one device, and XLA's threads, but where `fit` shares the batch over devices."""
        if self.name == OURS:
            large = workload.series * workload.particles * workload.averaged >= _WORTH_SHARING
            shared = workload.family == VRNN or (workload.group == "learning" and large)
            return tuple(sorted({1, cores})) if shared else (1,)
        return tuple(sorted({min(count, cores) for count in self.variants}))


ALL_SCHEMES = ("systematic", "stratified", "multinomial", "residual")

CONTENDERS = (
    Contender(OURS, "mcfo_worker.py", None, (FILTER, LEARN, PENDULUM, VRNN), ALL_SCHEMES),
    Contender("blackjax", "blackjax_filter.py", "blackjax", (FILTER,), ALL_SCHEMES),
    Contender("cuthbert", "cuthbert_filter.py", "cuthbert", (FILTER,), ("systematic", "multinomial")),
    Contender("particles", "particles_filter.py", "particles", (FILTER,), ALL_SCHEMES),
    Contender(
        "tensorflow-probability",
        "tfp_filter.py",
        "tfp",
        (FILTER,),
        ("systematic", "stratified", "multinomial"),
        slow=2e6,
    ),
    Contender("pyro", "pyro_filter.py", "pyro", (FILTER,), variants=(1, 2), slow=1e5),
    Contender("PyTorch loop", "torch_worker.py", "torch", (LEARN, PENDULUM, VRNN), variants=(1, 2)),
)


def contenders_of(workload: Workload) -> list[Contender]:
    return [one for one in CONTENDERS if one.can(workload)]
