"""Objectives by name. Each is an alias of a sampler and two gradient rules."""

from mcfo.gradients.rules import Accumulated as Accumulated
from mcfo.gradients.rules import Backward as Backward
from mcfo.gradients.rules import Reverse as Reverse
from mcfo.objectives.named import aesmc as aesmc
from mcfo.objectives.named import alternating as alternating
from mcfo.objectives.named import bootstrap as bootstrap
from mcfo.objectives.named import by_name as by_name
from mcfo.objectives.named import elbo as elbo
from mcfo.objectives.named import fivo as fivo
from mcfo.objectives.named import iwae as iwae
from mcfo.objectives.named import mcfo as mcfo
from mcfo.objectives.named import nasmc as nasmc
from mcfo.objectives.named import rws as rws
from mcfo.objectives.named import vsmc as vsmc
from mcfo.objectives.objective import Estimator as Estimator
from mcfo.objectives.objective import Objective as Objective
