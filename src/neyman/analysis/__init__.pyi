"""The names of this package that the layers above, users, and tests import."""

from neyman.analysis.estimators.least_squares import RADIUS_UNITS as RADIUS_UNITS
from neyman.analysis.estimators.least_squares import data_region as data_region
from neyman.analysis.estimators.least_squares import solve as solve
from neyman.analysis.hypothesis_tests.binomial_test import BinomialTest as BinomialTest
from neyman.analysis.hypothesis_tests.goodness_of_fit_test import (
    GoodnessOfFitTest as GoodnessOfFitTest,
)
from neyman.analysis.hypothesis_tests.mean_test import MeanTest as MeanTest
from neyman.analysis.hypothesis_tests.power import SimulatedPower as SimulatedPower
from neyman.analysis.hypothesis_tests.power import least_records as least_records
from neyman.analysis.hypothesis_tests.proportions_test import ProportionsTest as ProportionsTest
from neyman.analysis.hypothesis_tests.released_test import TestResult as TestResult
from neyman.analysis.training.clipping import careful_error as careful_error
from neyman.analysis.training.clipping import grid_rows as grid_rows
from neyman.analysis.training.result import Trained as Trained
