"""The names of this package that the layers above, users, and tests import."""

from neyman.mechanisms.base import Composed as Composed
from neyman.mechanisms.canonical.polygon_noise import PolygonNoise as PolygonNoise
from neyman.mechanisms.canonical.polygon_noise import polygons as polygons
from neyman.mechanisms.choice import Alternatives as Alternatives
from neyman.mechanisms.choice import Choice as Choice
from neyman.mechanisms.circular_gaussian import CircularGaussian as CircularGaussian
from neyman.mechanisms.custom_noise import CustomNoise as CustomNoise
from neyman.mechanisms.matrix_mechanism.balls_in_bins import BallsInBins as BallsInBins
from neyman.mechanisms.matrix_mechanism.banded import optimized_band as optimized_band
from neyman.mechanisms.matrix_mechanism.banded import optimized_toeplitz as optimized_toeplitz
from neyman.mechanisms.matrix_mechanism.blocks import Binned as Binned
from neyman.mechanisms.matrix_mechanism.blocks import Tree as Tree
from neyman.mechanisms.matrix_mechanism.factorization import optimized as optimized
from neyman.mechanisms.matrix_mechanism.strategy import STRATEGY_UNIT as STRATEGY_UNIT
from neyman.mechanisms.matrix_mechanism.strategy import Strategy as Strategy
from neyman.mechanisms.matrix_mechanism.strategy import Toeplitz as Toeplitz
from neyman.mechanisms.matrix_mechanism.strategy import Triangular as Triangular
from neyman.mechanisms.matrix_mechanism.strategy import square_root as square_root
from neyman.mechanisms.optimal_marginals import MarginalStrategy as MarginalStrategy
from neyman.mechanisms.registry import MODULES as MODULES
from neyman.mechanisms.sampling import Subsampled as Subsampled
from neyman.mechanisms.stability.grid import Grid as Grid
