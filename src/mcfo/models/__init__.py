"""Models p(z, x), for one particle of one series."""

from mcfo.covariance import Covariance as Covariance
from mcfo.models.autoregression import LeveragedVolatility as LeveragedVolatility
from mcfo.models.autoregression import NegativeBinomialCounts as NegativeBinomialCounts
from mcfo.models.autoregression import PoissonCounts as PoissonCounts
from mcfo.models.autoregression import StochasticVolatility as StochasticVolatility
from mcfo.models.base import MarkovModel as MarkovModel
from mcfo.models.base import Model as Model
from mcfo.models.components import Regression as Regression
from mcfo.models.components import Season as Season
from mcfo.models.components import Trend as Trend
from mcfo.models.deep import DeepMarkov as DeepMarkov
from mcfo.models.linear_gaussian import IrregularLinearGaussian as IrregularLinearGaussian
from mcfo.models.linear_gaussian import LinearGaussian as LinearGaussian
from mcfo.models.recurrent import SRNN as SRNN
from mcfo.models.recurrent import VRNN as VRNN
from mcfo.models.stationary_components import AR as AR
from mcfo.models.stationary_components import Cycle as Cycle
from mcfo.models.structural_model import EmittedStructural as EmittedStructural
from mcfo.models.structural_model import GaussianStructural as GaussianStructural
from mcfo.models.structural_model import VolatileStructural as VolatileStructural
from mcfo.models.structural_words import structural as structural
