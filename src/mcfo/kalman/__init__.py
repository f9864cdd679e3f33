"""The exact answers for linear Gaussian models: likelihood, filter, smoother, forecasts, draws."""

from mcfo.kalman.filter import KalmanFilter as KalmanFilter
from mcfo.kalman.filter import is_linear_gaussian as is_linear_gaussian
from mcfo.kalman.filter import kalman_filter as kalman_filter
from mcfo.kalman.filter import log_evidence as log_evidence
from mcfo.kalman.forecast import KalmanForecast as KalmanForecast
from mcfo.kalman.forecast import draw_paths as draw_paths
from mcfo.kalman.forecast import kalman_forecast as kalman_forecast
from mcfo.kalman.forecast import observation_laws as observation_laws
from mcfo.kalman.smoother import kalman_smoother as kalman_smoother
from mcfo.kalman.update import Gaussians as Gaussians
