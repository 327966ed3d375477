"""Neyman: differential privacy as a hypothesis test.

Describe what is released; learn what the best attacker could find out, certified; find the least
noise that keeps the attacker below a line; make the release and spend no more than was allowed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neyman.accounting.calibrate import calibrate
    from neyman.accounting.compare_noise import alike
    from neyman.accounting.dp_accounting.accountant import NeymanAccountant
    from neyman.accounting.dp_accounting.privacy_loss import from_dp_event, from_pld, to_pld
    from neyman.accounting.filters import Filter, Odometer
    from neyman.accounting.literature.approximations import central_limit, edgeworth
    from neyman.accounting.target import at_most
    from neyman.canonical.canonical_noise import CanonicalNoise
    from neyman.matrix_mechanism.matrix_mechanism import MatrixMechanism
    from neyman.mechanisms.additive import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
    from neyman.mechanisms.base import Mechanism
    from neyman.mechanisms.dp_sgd import DPSGD
    from neyman.mechanisms.gaussian_mixture import GaussianMixture, NonPrivate, RandomSubset
    from neyman.mechanisms.last_iterate import (
        NoisyCyclicGradientDescent,
        NoisyGradientDescent,
        NoisyStochasticGradientDescent,
    )
    from neyman.mechanisms.local_randomizers import (
        CategoryResponse,
        HadamardResponse,
        UnaryEncoding,
    )
    from neyman.mechanisms.marginals import Marginals
    from neyman.mechanisms.optimal_marginals import optimal_marginals
    from neyman.mechanisms.randomized_response import LocalRandomizer, RandomizedResponse
    from neyman.mechanisms.selection import ExponentialMechanism, ReportNoisyMax, SparseVector
    from neyman.numerics.bound import Bound
    from neyman.release.data_check import DataCheck, check_data
    from neyman.release.folder import Release
    from neyman.release.ledger import Ledger
    from neyman.release.plan import Plan
    from neyman.semantics.bayes import posterior_chance, posterior_ratio, posterior_ratios
    from neyman.semantics.best_test import best_test
    from neyman.show.publish import run
    from neyman.tradeoff.from_data import between, from_points, from_profile, total_variation
    from neyman.tradeoff.garbling import Garbling, garbling
    from neyman.tradeoff.guarantees import approximate, gdp, pbdp, perfect, pure, renyi, tcdp, zcdp
    from neyman.tradeoff.mixture_curve import mixture
    from neyman.tradeoff.order import compare
    from neyman.tradeoff.tradeoff import Tradeoff

__version__ = "0.1.0"

__all__ = [
    "DPSGD",
    "Bound",
    "CanonicalNoise",
    "CategoryResponse",
    "DataCheck",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "ExponentialMechanism",
    "Filter",
    "Garbling",
    "Gaussian",
    "GaussianMixture",
    "HadamardResponse",
    "Laplace",
    "Ledger",
    "LocalRandomizer",
    "Marginals",
    "MatrixMechanism",
    "Mechanism",
    "NeymanAccountant",
    "NoisyCyclicGradientDescent",
    "NoisyGradientDescent",
    "NoisyStochasticGradientDescent",
    "NonPrivate",
    "Odometer",
    "Plan",
    "RandomSubset",
    "RandomizedResponse",
    "Release",
    "ReportNoisyMax",
    "SparseVector",
    "Tradeoff",
    "UnaryEncoding",
    "alike",
    "approximate",
    "at_most",
    "best_test",
    "between",
    "calibrate",
    "central_limit",
    "check_data",
    "compare",
    "edgeworth",
    "from_dp_event",
    "from_pld",
    "from_points",
    "from_profile",
    "garbling",
    "gdp",
    "mixture",
    "optimal_marginals",
    "pbdp",
    "perfect",
    "posterior_chance",
    "posterior_ratio",
    "posterior_ratios",
    "pure",
    "renyi",
    "run",
    "tcdp",
    "to_pld",
    "total_variation",
    "zcdp",
]

# What a name needs is imported when it is first asked for: the first mechanism brings NumPy and
# scipy.special, a plan its extras; `neyman --help` needs neither.
_WHERE = {
    "alike": "neyman.accounting.compare_noise",
    "calibrate": "neyman.accounting.calibrate",
    "Filter": "neyman.accounting.filters",
    "Odometer": "neyman.accounting.filters",
    "NeymanAccountant": "neyman.accounting.dp_accounting.privacy_loss",
    "from_dp_event": "neyman.accounting.dp_accounting.privacy_loss",
    "from_pld": "neyman.accounting.dp_accounting.privacy_loss",
    "to_pld": "neyman.accounting.dp_accounting.privacy_loss",
    "central_limit": "neyman.accounting.literature.approximations",
    "edgeworth": "neyman.accounting.literature.approximations",
    "at_most": "neyman.accounting.target",
    "mixture": "neyman.tradeoff.mixture_curve",
    "between": "neyman.tradeoff.from_data",
    "from_points": "neyman.tradeoff.from_data",
    "from_profile": "neyman.tradeoff.from_data",
    "total_variation": "neyman.tradeoff.from_data",
    "approximate": "neyman.tradeoff.guarantees",
    "gdp": "neyman.tradeoff.guarantees",
    "pbdp": "neyman.tradeoff.guarantees",
    "perfect": "neyman.tradeoff.guarantees",
    "pure": "neyman.tradeoff.guarantees",
    "renyi": "neyman.tradeoff.guarantees",
    "tcdp": "neyman.tradeoff.guarantees",
    "zcdp": "neyman.tradeoff.guarantees",
    "Garbling": "neyman.tradeoff.garbling",
    "garbling": "neyman.tradeoff.garbling",
    "compare": "neyman.tradeoff.order",
    "Tradeoff": "neyman.tradeoff.tradeoff",
    "DiscreteGaussian": "neyman.mechanisms.additive",
    "DiscreteLaplace": "neyman.mechanisms.additive",
    "Gaussian": "neyman.mechanisms.additive",
    "Laplace": "neyman.mechanisms.additive",
    "Marginals": "neyman.mechanisms.marginals",
    "MatrixMechanism": "neyman.matrix_mechanism.matrix_mechanism",
    "optimal_marginals": "neyman.mechanisms.optimal_marginals",
    "Mechanism": "neyman.mechanisms.base",
    "CanonicalNoise": "neyman.canonical.canonical_noise",
    "NoisyCyclicGradientDescent": "neyman.mechanisms.last_iterate",
    "NoisyGradientDescent": "neyman.mechanisms.last_iterate",
    "NoisyStochasticGradientDescent": "neyman.mechanisms.last_iterate",
    "CategoryResponse": "neyman.mechanisms.local_randomizers",
    "HadamardResponse": "neyman.mechanisms.local_randomizers",
    "UnaryEncoding": "neyman.mechanisms.local_randomizers",
    "GaussianMixture": "neyman.mechanisms.gaussian_mixture",
    "NonPrivate": "neyman.mechanisms.gaussian_mixture",
    "RandomSubset": "neyman.mechanisms.gaussian_mixture",
    "LocalRandomizer": "neyman.mechanisms.randomized_response",
    "RandomizedResponse": "neyman.mechanisms.randomized_response",
    "ExponentialMechanism": "neyman.mechanisms.selection",
    "ReportNoisyMax": "neyman.mechanisms.selection",
    "SparseVector": "neyman.mechanisms.selection",
    "DPSGD": "neyman.mechanisms.dp_sgd",
    "Bound": "neyman.numerics.bound",
    "DataCheck": "neyman.release.data_check",
    "check_data": "neyman.release.data_check",
    "Ledger": "neyman.release.ledger",
    "Plan": "neyman.release.plan",
    "Release": "neyman.release.run",
    "posterior_chance": "neyman.semantics.bayes",
    "posterior_ratio": "neyman.semantics.bayes",
    "posterior_ratios": "neyman.semantics.bayes",
    "best_test": "neyman.semantics.best_test",
    "run": "neyman.show.publish",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'neyman' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_WHERE[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
