"""Proposals q(z | x), for one particle of one series."""

from mcfo.proposals.amortized import Amortized as Amortized
from mcfo.proposals.amortized import RecurrentProposal as RecurrentProposal
from mcfo.proposals.base import Bootstrap as Bootstrap
from mcfo.proposals.base import Proposal as Proposal
from mcfo.proposals.gaussian import AffineGaussian as AffineGaussian
from mcfo.proposals.gaussian import LocallyOptimal as LocallyOptimal
from mcfo.proposals.linearized import Linearized as Linearized
from mcfo.proposals.regimes import OptimalRegimes as OptimalRegimes
