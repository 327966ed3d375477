"""Neyman: differential privacy as a hypothesis test.

Describe what is released; learn what the best attacker could find out, certified; find the least
noise that keeps the attacker below a line; make the release and spend no more than was allowed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neyman.accounting.alike import alike
    from neyman.accounting.calibrate import calibrate
    from neyman.accounting.filters import Filter, Odometer
    from neyman.accounting.interop import NeymanAccountant, from_dp_event, from_pld, to_pld
    from neyman.accounting.limits import central_limit, edgeworth
    from neyman.accounting.target import at_most
    from neyman.core.drawn import mixture
    from neyman.core.experiments import between, from_points, from_profile, total_variation
    from neyman.core.families import approximate, gdp, pbdp, perfect, pure, renyi, tcdp, zcdp
    from neyman.core.garbling import Garbling, garbling
    from neyman.core.order import compare
    from neyman.core.tradeoff import Tradeoff
    from neyman.mechanisms.additive import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
    from neyman.mechanisms.algebra import Mechanism
    from neyman.mechanisms.canonical import CanonicalNoise
    from neyman.mechanisms.iterate import (
        NoisyCyclicGradientDescent,
        NoisyGradientDescent,
        NoisyStochasticGradientDescent,
    )
    from neyman.mechanisms.local import CategoryResponse, HadamardResponse, UnaryEncoding
    from neyman.mechanisms.marginals import Marginals
    from neyman.mechanisms.matrix import MatrixMechanism
    from neyman.mechanisms.mixture import GaussianMixture, NonPrivate, RandomSubset
    from neyman.mechanisms.optimal_marginals import optimal_marginals
    from neyman.mechanisms.response import LocalRandomizer, RandomizedResponse
    from neyman.mechanisms.selection import ExponentialMechanism, ReportNoisyMax, SparseVector
    from neyman.mechanisms.sgd import DPSGD
    from neyman.numerics.bound import Bound
    from neyman.release.data_check import DataCheck, check_data
    from neyman.release.ledger import Ledger
    from neyman.release.plan import Plan
    from neyman.release.run import Release
    from neyman.semantics.bayes import posterior_chance, posterior_ratio, posterior_ratios
    from neyman.semantics.best_test import best_test
    from neyman.show.publish import run

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
    "alike": "neyman.accounting.alike",
    "calibrate": "neyman.accounting.calibrate",
    "Filter": "neyman.accounting.filters",
    "Odometer": "neyman.accounting.filters",
    "NeymanAccountant": "neyman.accounting.interop",
    "from_dp_event": "neyman.accounting.interop",
    "from_pld": "neyman.accounting.interop",
    "to_pld": "neyman.accounting.interop",
    "central_limit": "neyman.accounting.limits",
    "edgeworth": "neyman.accounting.limits",
    "at_most": "neyman.accounting.target",
    "mixture": "neyman.core.drawn",
    "between": "neyman.core.experiments",
    "from_points": "neyman.core.experiments",
    "from_profile": "neyman.core.experiments",
    "total_variation": "neyman.core.experiments",
    "approximate": "neyman.core.families",
    "gdp": "neyman.core.families",
    "pbdp": "neyman.core.families",
    "perfect": "neyman.core.families",
    "pure": "neyman.core.families",
    "renyi": "neyman.core.families",
    "tcdp": "neyman.core.families",
    "zcdp": "neyman.core.families",
    "Garbling": "neyman.core.garbling",
    "garbling": "neyman.core.garbling",
    "compare": "neyman.core.order",
    "Tradeoff": "neyman.core.tradeoff",
    "DiscreteGaussian": "neyman.mechanisms.additive",
    "DiscreteLaplace": "neyman.mechanisms.additive",
    "Gaussian": "neyman.mechanisms.additive",
    "Laplace": "neyman.mechanisms.additive",
    "Marginals": "neyman.mechanisms.marginals",
    "MatrixMechanism": "neyman.mechanisms.matrix",
    "optimal_marginals": "neyman.mechanisms.optimal_marginals",
    "Mechanism": "neyman.mechanisms.algebra",
    "CanonicalNoise": "neyman.mechanisms.canonical",
    "NoisyCyclicGradientDescent": "neyman.mechanisms.iterate",
    "NoisyGradientDescent": "neyman.mechanisms.iterate",
    "NoisyStochasticGradientDescent": "neyman.mechanisms.iterate",
    "CategoryResponse": "neyman.mechanisms.local",
    "HadamardResponse": "neyman.mechanisms.local",
    "UnaryEncoding": "neyman.mechanisms.local",
    "GaussianMixture": "neyman.mechanisms.mixture",
    "NonPrivate": "neyman.mechanisms.mixture",
    "RandomSubset": "neyman.mechanisms.mixture",
    "LocalRandomizer": "neyman.mechanisms.response",
    "RandomizedResponse": "neyman.mechanisms.response",
    "ExponentialMechanism": "neyman.mechanisms.selection",
    "ReportNoisyMax": "neyman.mechanisms.selection",
    "SparseVector": "neyman.mechanisms.selection",
    "DPSGD": "neyman.mechanisms.sgd",
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
