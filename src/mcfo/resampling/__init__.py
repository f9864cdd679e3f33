"""Resampling: how ancestors are drawn, and when."""

from mcfo.smc.resampling import Always as Always
from mcfo.smc.resampling import Criterion as Criterion
from mcfo.smc.resampling import ESSBelow as ESSBelow
from mcfo.smc.resampling import Multinomial as Multinomial
from mcfo.smc.resampling import Never as Never
from mcfo.smc.resampling import Resampling as Resampling
from mcfo.smc.resampling import Residual as Residual
from mcfo.smc.resampling import Stratified as Stratified
from mcfo.smc.resampling import Systematic as Systematic
