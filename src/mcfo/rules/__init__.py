"""Gradient rules: what each differentiates, and the classes that a rule of your own derives from."""

from mcfo.gradients.rules import DReG as DReG
from mcfo.gradients.rules import Flow as Flow
from mcfo.gradients.rules import PathRule as PathRule
from mcfo.gradients.rules import Pathwise as Pathwise
from mcfo.gradients.rules import Reparameterized as Reparameterized
from mcfo.gradients.rules import Rule as Rule
from mcfo.gradients.rules import Step as Step
from mcfo.gradients.rules import StepRule as StepRule
from mcfo.gradients.rules import StickingTheLanding as StickingTheLanding
from mcfo.gradients.score import FilterScore as FilterScore
from mcfo.gradients.score import Fisher as Fisher
from mcfo.gradients.score import InclusiveKL as InclusiveKL
from mcfo.gradients.score import PathKL as PathKL
from mcfo.gradients.score import ProposalClimbing as ProposalClimbing
from mcfo.gradients.score import ResamplingScore as ResamplingScore
from mcfo.gradients.score import ScoreClimbing as ScoreClimbing
from mcfo.gradients.score import UnbiasedScore as UnbiasedScore
