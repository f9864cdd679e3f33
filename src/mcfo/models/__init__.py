"""Models p(z, x), for one particle of one series."""

from mcfo.covariance import Covariance as Covariance
from mcfo.models.base import MarkovModel as MarkovModel
from mcfo.models.base import Model as Model
from mcfo.models.counts import NegativeBinomialCounts as NegativeBinomialCounts
from mcfo.models.counts import PoissonCounts as PoissonCounts
from mcfo.models.deep import DeepMarkov as DeepMarkov
from mcfo.models.linear_gaussian import IrregularLinearGaussian as IrregularLinearGaussian
from mcfo.models.linear_gaussian import LinearGaussian as LinearGaussian
from mcfo.models.recurrent import SRNN as SRNN
from mcfo.models.recurrent import VRNN as VRNN
from mcfo.models.stochastic_volatility import LeveragedVolatility as LeveragedVolatility
from mcfo.models.stochastic_volatility import StochasticVolatility as StochasticVolatility
