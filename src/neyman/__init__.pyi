"""The public names and where each is defined; `neyman/__init__.py` imports them from here."""

from neyman.accounting.alike import alike as alike
from neyman.accounting.calibrate import calibrate as calibrate
from neyman.accounting.literature.deployments import deployments as deployments
from neyman.accounting.optimality.least_error import least_error as least_error
from neyman.accounting.semantics.bayes import posterior_ratio as posterior_ratio
from neyman.accounting.semantics.best_test import best_test as best_test
from neyman.accounting.semantics.budget import at_most as at_most
from neyman.analysis.training.train import train as train
from neyman.api import run as run
from neyman.curves.tradeoff.from_data import between as between
from neyman.curves.tradeoff.from_data import from_points as from_points
from neyman.curves.tradeoff.from_data import from_profile as from_profile
from neyman.curves.tradeoff.from_data import total_variation as total_variation
from neyman.curves.tradeoff.guarantees import approximate as approximate
from neyman.curves.tradeoff.guarantees import gdp as gdp
from neyman.curves.tradeoff.guarantees import pbdp as pbdp
from neyman.curves.tradeoff.guarantees import perfect as perfect
from neyman.curves.tradeoff.guarantees import pure as pure
from neyman.curves.tradeoff.guarantees import renyi as renyi
from neyman.curves.tradeoff.guarantees import tcdp as tcdp
from neyman.curves.tradeoff.guarantees import zcdp as zcdp
from neyman.curves.tradeoff.mixture_curve import mixture as mixture
from neyman.curves.tradeoff.order import compare as compare
from neyman.curves.tradeoff.tradeoff import Tradeoff as Tradeoff
from neyman.display.explorer.notebook_explorer import explore as explore
from neyman.ledger.ledger import Ledger as Ledger
from neyman.ledger.throwaway import throwaway as throwaway
from neyman.mechanisms.additive import DiscreteGaussian as DiscreteGaussian
from neyman.mechanisms.additive import DiscreteLaplace as DiscreteLaplace
from neyman.mechanisms.additive import Gaussian as Gaussian
from neyman.mechanisms.additive import Laplace as Laplace
from neyman.mechanisms.base import Mechanism as Mechanism
from neyman.mechanisms.canonical.canonical_noise import CanonicalNoise as CanonicalNoise
from neyman.mechanisms.dp_sgd import DPSGD as DPSGD
from neyman.mechanisms.federated import Federated as Federated
from neyman.mechanisms.full_disclosure import NonPrivate as NonPrivate
from neyman.mechanisms.full_disclosure import RandomSubset as RandomSubset
from neyman.mechanisms.gaussian_mixture import GaussianMixture as GaussianMixture
from neyman.mechanisms.inverse_sensitivity import InverseSensitivity as InverseSensitivity
from neyman.mechanisms.last_iterate import NoisyCyclicGradientDescent as NoisyCyclicGradientDescent
from neyman.mechanisms.last_iterate import NoisyGradientDescent as NoisyGradientDescent
from neyman.mechanisms.last_iterate import (
    NoisyStochasticGradientDescent as NoisyStochasticGradientDescent,
)
from neyman.mechanisms.local_randomizers import CategoryResponse as CategoryResponse
from neyman.mechanisms.local_randomizers import HadamardResponse as HadamardResponse
from neyman.mechanisms.local_randomizers import UnaryEncoding as UnaryEncoding
from neyman.mechanisms.marginals import Marginals as Marginals
from neyman.mechanisms.matrix_mechanism.matrix_mechanism import MatrixMechanism as MatrixMechanism
from neyman.mechanisms.optimal_marginals import optimal_marginals as optimal_marginals
from neyman.mechanisms.personal_budgets import PersonalBudgets as PersonalBudgets
from neyman.mechanisms.posterior_sample import PosteriorSample as PosteriorSample
from neyman.mechanisms.private_selection import ExponentialMechanism as ExponentialMechanism
from neyman.mechanisms.private_selection import ReportNoisyMax as ReportNoisyMax
from neyman.mechanisms.private_selection import SparseVector as SparseVector
from neyman.mechanisms.randomized_response import LocalRandomizer as LocalRandomizer
from neyman.mechanisms.randomized_response import RandomizedResponse as RandomizedResponse
from neyman.mechanisms.rounded_noise import RoundedGaussian as RoundedGaussian
from neyman.mechanisms.stability.distances import distance_to_instability as distance_to_instability
from neyman.mechanisms.stability.propose_test_release import (
    ProposeTestRelease as ProposeTestRelease,
)
from neyman.mechanisms.stability.sensitivities import smooth_sensitivity as smooth_sensitivity
from neyman.mechanisms.stability.smooth_noise import SmoothNoise as SmoothNoise
from neyman.mechanisms.staircase import Staircase as Staircase
from neyman.mechanisms.tuning.runs import Runs as Runs
from neyman.mechanisms.tuning.winner import select_best as select_best
from neyman.numerics.bound import Bound as Bound
from neyman.publishing.plan import Plan as Plan
from neyman.publishing.plan.sections import Unit as Unit
from neyman.publishing.plan.sections import keys as keys
from neyman.publishing.release.data_check import check_data as check_data
from neyman.publishing.release.folder import Release as Release
from neyman.publishing.release.session import Session as Session

__version__: str

from . import audit as audit
from . import estimate as estimate
from . import query as query
from . import risk as risk
from . import torch as torch
