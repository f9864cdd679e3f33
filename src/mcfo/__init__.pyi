"""The public names, each with its home; `__init__.py` reads this file."""

__version__: str
__all__: list[str]

from mcfo.covariance import Covariance as Covariance
from mcfo.exact.kalman import kalman_filter as kalman_filter
from mcfo.exact.kalman import kalman_smoother as kalman_smoother
from mcfo.models.base import MarkovModel as MarkovModel
from mcfo.models.base import Model as Model
from mcfo.models.base import simulate as simulate
from mcfo.models.counts import PoissonCounts as PoissonCounts
from mcfo.models.linear_gaussian import LinearGaussian as LinearGaussian
from mcfo.models.stochastic_volatility import StochasticVolatility as StochasticVolatility
from mcfo.proposals.base import Bootstrap as Bootstrap
from mcfo.proposals.base import Proposal as Proposal
from mcfo.proposals.gaussian import AffineGaussian as AffineGaussian
from mcfo.proposals.gaussian import LocallyOptimal as LocallyOptimal
from mcfo.sequences import Sequence as Sequence
from mcfo.sequences import stack as stack
from mcfo.smc.diagnostics import describe as describe
from mcfo.smc.diagnostics import require_finite as require_finite
from mcfo.smc.filter import SMC as SMC
from mcfo.smc.filter import sis as sis
from mcfo.smc.frames import frame as frame
from mcfo.smc.frames import frame_at as frame_at
from mcfo.smc.frames import frames as frames
from mcfo.smc.pimh import PIMH as PIMH
from mcfo.smc.resampling import Always as Always
from mcfo.smc.resampling import ESSBelow as ESSBelow
from mcfo.smc.resampling import Multinomial as Multinomial
from mcfo.smc.resampling import Never as Never
from mcfo.smc.resampling import Residual as Residual
from mcfo.smc.resampling import Stratified as Stratified
from mcfo.smc.resampling import Systematic as Systematic
from mcfo.smc.smoothing import backward_simulation as backward_simulation
from mcfo.smc.smoothing import draw_trajectories as draw_trajectories
from mcfo.smc.smoothing import fixed_lag as fixed_lag
from mcfo.smc.smoothing import genealogy as genealogy
