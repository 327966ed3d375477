"""Neyman: differential privacy as a hypothesis test.

Describe what is released; learn what the best attacker could find out, certified; find the least
noise that keeps the attacker below a line; make the release and spend no more than was allowed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from neyman.accounting.calibrate import calibrate
from neyman.accounting.target import at_most
from neyman.core.experiments import between, from_points, total_variation
from neyman.core.families import approximate, gdp, perfect, pure, zcdp
from neyman.core.garbling import Garbling, garbling
from neyman.core.order import compare
from neyman.core.tradeoff import Tradeoff
from neyman.mechanisms.additive import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from neyman.mechanisms.algebra import Mechanism
from neyman.mechanisms.mixture import GaussianMixture, NonPrivate
from neyman.mechanisms.response import RandomizedResponse
from neyman.numerics.bound import Bound

if TYPE_CHECKING:
    from neyman.accounting.filters import Filter, Odometer
    from neyman.accounting.interop import NeymanAccountant, from_dp_event, from_pld, to_pld
    from neyman.accounting.limits import central_limit, edgeworth
    from neyman.mechanisms.iterate import (
        NoisyCyclicGradientDescent,
        NoisyGradientDescent,
        NoisyStochasticGradientDescent,
    )
    from neyman.release.ledger import Ledger
    from neyman.release.plan import Plan
    from neyman.release.run import Release
    from neyman.show.publish import run

__version__ = "0.1.0"

__all__ = [
    "Bound",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Filter",
    "Garbling",
    "Gaussian",
    "GaussianMixture",
    "Laplace",
    "Ledger",
    "Mechanism",
    "NeymanAccountant",
    "NoisyCyclicGradientDescent",
    "NoisyGradientDescent",
    "NoisyStochasticGradientDescent",
    "NonPrivate",
    "Odometer",
    "Plan",
    "RandomizedResponse",
    "Release",
    "Tradeoff",
    "approximate",
    "at_most",
    "between",
    "calibrate",
    "central_limit",
    "compare",
    "edgeworth",
    "from_dp_event",
    "from_pld",
    "from_points",
    "garbling",
    "gdp",
    "perfect",
    "pure",
    "run",
    "to_pld",
    "total_variation",
    "zcdp",
]

# What needs an extra is imported when it is first asked for: `import neyman` stays light.
_LATER = {
    "Filter": "neyman.accounting.filters",
    "Odometer": "neyman.accounting.filters",
    "central_limit": "neyman.accounting.limits",
    "edgeworth": "neyman.accounting.limits",
    "NoisyCyclicGradientDescent": "neyman.mechanisms.iterate",
    "NoisyGradientDescent": "neyman.mechanisms.iterate",
    "NoisyStochasticGradientDescent": "neyman.mechanisms.iterate",
    "NeymanAccountant": "neyman.accounting.interop",
    "from_dp_event": "neyman.accounting.interop",
    "from_pld": "neyman.accounting.interop",
    "to_pld": "neyman.accounting.interop",
    "Ledger": "neyman.release.ledger",
    "Plan": "neyman.release.plan",
    "Release": "neyman.release.run",
    "run": "neyman.show.publish",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'neyman' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
