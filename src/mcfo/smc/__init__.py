"""Sequential Monte Carlo: filters, their traces, smoothing."""

from mcfo.smc.conditional import ConditionalSMC as ConditionalSMC
from mcfo.smc.diagnostics import describe as describe
from mcfo.smc.diagnostics import require_finite as require_finite
from mcfo.smc.filter import SMC as SMC
from mcfo.smc.filter import sis as sis
from mcfo.smc.pimh import PIMH as PIMH
from mcfo.smc.smoothing import backward_simulation as backward_simulation
from mcfo.smc.smoothing import draw_trajectories as draw_trajectories
from mcfo.smc.smoothing import fixed_lag as fixed_lag
from mcfo.smc.smoothing import genealogy as genealogy
from mcfo.smc.step_scan import frame as frame
from mcfo.smc.step_scan import frame_at as frame_at
from mcfo.smc.step_scan import frames as frames
from mcfo.smc.trace import Trace as Trace
from mcfo.smc.trajectory import Trajectory as Trajectory
