"""What is done with a model: filtering, smoothing, forecasts, scores."""

from mcfo.data.export import to_frame as to_frame
from mcfo.inference.evaluation import Evaluation as Evaluation
from mcfo.inference.evaluation import evaluate as evaluate
from mcfo.inference.filtering import Filtered as Filtered
from mcfo.inference.filtering import filter as filter
from mcfo.inference.filtering import filter_series as filter_series
from mcfo.inference.forecasting import Forecast as Forecast
from mcfo.inference.forecasting import forecast as forecast
from mcfo.inference.forecasting import forecast_series as forecast_series
from mcfo.inference.predictive_checks import predictive_checks as predictive_checks
from mcfo.inference.rolling_evaluation import RollingEvaluation as RollingEvaluation
from mcfo.inference.rolling_evaluation import evaluate_rolling as evaluate_rolling
from mcfo.inference.smoothing import Smoothed as Smoothed
from mcfo.inference.smoothing import gibbs_series as gibbs_series
from mcfo.inference.smoothing import smooth as smooth
from mcfo.inference.smoothing import smooth_series as smooth_series
from mcfo.inference.structural_components import components as components
from mcfo.inference.unbiased_smoothing import UnbiasedSmoothing as UnbiasedSmoothing
from mcfo.inference.unbiased_smoothing import unbiased_smoothing as unbiased_smoothing
