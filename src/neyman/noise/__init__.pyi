"""The names of this package that the layers above, users, and tests import."""

from neyman.noise.bits import Bits as Bits
from neyman.noise.bits import SecureBits as SecureBits
from neyman.noise.integer_noise import discrete_gaussian as discrete_gaussian
from neyman.noise.integer_noise import discrete_laplace as discrete_laplace
from neyman.noise.integer_noise import rounded_gaussian as rounded_gaussian
from neyman.noise.parameters import source as source
from neyman.noise.quantile_draw import draw_quantile as draw_quantile
from neyman.noise.quantile_draw import draw_sorted_quantile as draw_sorted_quantile
from neyman.noise.row_draws import coins as coins
from neyman.noise.row_draws import order as order
from neyman.noise.row_draws import subset as subset
from neyman.noise.run_count import draw_negative_binomial as draw_negative_binomial
from neyman.noise.run_count import draw_poisson as draw_poisson
from neyman.noise.weighted_draw import weighted_choice as weighted_choice
from neyman.noise.weights import RoundedWeights as RoundedWeights
