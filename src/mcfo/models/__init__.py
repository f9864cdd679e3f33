"""Models p(z, x), for one particle of one series."""

from mcfo.covariance import Covariance as Covariance
from mcfo.models.autoregression import LeveragedVolatility as LeveragedVolatility
from mcfo.models.autoregression import NegativeBinomialCounts as NegativeBinomialCounts
from mcfo.models.autoregression import PoissonCounts as PoissonCounts
from mcfo.models.autoregression import StochasticVolatility as StochasticVolatility
from mcfo.models.base import MarkovModel as MarkovModel
from mcfo.models.base import Model as Model
from mcfo.models.deep import DeepMarkov as DeepMarkov
from mcfo.models.hidden_markov import CategoricalEmission as CategoricalEmission
from mcfo.models.hidden_markov import GaussianEmission as GaussianEmission
from mcfo.models.hidden_markov import HiddenMarkov as HiddenMarkov
from mcfo.models.hidden_markov import PoissonEmission as PoissonEmission
from mcfo.models.linear_gaussian import IrregularLinearGaussian as IrregularLinearGaussian
from mcfo.models.linear_gaussian import LinearGaussian as LinearGaussian
from mcfo.models.recurrent import SRNN as SRNN
from mcfo.models.recurrent import VRNN as VRNN
from mcfo.models.regimes import MarkovChain as MarkovChain
from mcfo.models.switching import SwitchingLinearGaussian as SwitchingLinearGaussian
