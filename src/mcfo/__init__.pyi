"""The public names, each with its home; `__init__.py` reads this file."""

__version__: str
__all__: list[str]

from mcfo import inference as inference
from mcfo import models as models
from mcfo import objectives as objectives
from mcfo import online as online
from mcfo import proposals as proposals
from mcfo import resampling as resampling
from mcfo import rules as rules
from mcfo import smc as smc
from mcfo.catalogue.registry import initialize as initialize
from mcfo.data.run_columns import read_for_run as read_for_run
from mcfo.data.tables import read_series as read_series
from mcfo.forward_algorithm import forward_backward as forward_backward
from mcfo.forward_algorithm import forward_filter as forward_filter
from mcfo.forward_algorithm import viterbi as viterbi
from mcfo.inference.evaluation import evaluate as evaluate
from mcfo.inference.filtering import filter as filter
from mcfo.inference.forecasting import forecast as forecast
from mcfo.inference.rolling_evaluation import evaluate_rolling as evaluate_rolling
from mcfo.inference.smoothing import smooth as smooth
from mcfo.kalman import kalman_filter as kalman_filter
from mcfo.kalman import kalman_forecast as kalman_forecast
from mcfo.kalman import kalman_smoother as kalman_smoother
from mcfo.learning.comparison import compare as compare
from mcfo.learning.devices import use_every_core as use_every_core
from mcfo.learning.fit import fit as fit
from mcfo.learning.fit_each import FittedEach as FittedEach
from mcfo.learning.fit_each import fit_each as fit_each
from mcfo.learning.progress import ProgressBar as ProgressBar
from mcfo.learning.progress import TensorBoard as TensorBoard
from mcfo.learning.results import Fitted as Fitted
from mcfo.learning.saved_runs import load as load
from mcfo.learning.saved_runs import load_run as load_run
from mcfo.learning.saved_runs import save as save
from mcfo.learning.settings import Settings as Settings
from mcfo.models.base import MarkovModel as MarkovModel
from mcfo.models.base import Model as Model
from mcfo.models.base import simulate as simulate
from mcfo.objectives.objective import Estimator as Estimator
from mcfo.objectives.objective import Objective as Objective
from mcfo.posterior.result import Posterior as Posterior
from mcfo.posterior.result import load_posterior as load_posterior
from mcfo.posterior.sampling import sample_posterior as sample_posterior
from mcfo.proposals.base import Proposal as Proposal
from mcfo.series import Series as Series
from mcfo.series import stack as stack
from mcfo.smc.diagnostics import describe as describe
from mcfo.smc.filter import SMC as SMC
from mcfo.smc.pimh import PIMH as PIMH
from mcfo.smc.trace import Trace as Trace
