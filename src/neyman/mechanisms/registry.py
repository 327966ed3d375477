"""Locate the modules of mechanism types, and of methods that build mechanisms, for lazy loading.

Stored JSON names types, not modules. To add a mechanism, add its type here. An outside package
needs no entry here: its subclass of `Mechanism` registers itself on import. An entry point in the
group "neyman.mechanisms" names the class, so that Neyman imports it at the first use of its name.
"""

from __future__ import annotations

from importlib import import_module
from typing import Literal, TypeVar

T = TypeVar("T")
GROUP = "neyman.mechanisms"  # the group of entry points

MODULES = {
    "Alternatives": "neyman.mechanisms.choice",
    "BallsInBins": "neyman.mechanisms.matrix_mechanism.balls_in_bins",
    "CanonicalNoise": "neyman.mechanisms.canonical.canonical_noise",
    "CategoryResponse": "neyman.mechanisms.local_randomizers",
    "Choice": "neyman.mechanisms.choice",
    "CircularGaussian": "neyman.mechanisms.circular_gaussian",
    "Composed": "neyman.mechanisms.base",
    "DPSGD": "neyman.mechanisms.dp_sgd",
    "DiscreteGaussian": "neyman.mechanisms.additive",
    "DiscreteLaplace": "neyman.mechanisms.additive",
    "ExponentialMechanism": "neyman.mechanisms.private_selection",
    "Federated": "neyman.mechanisms.federated",
    "FixedSize": "neyman.mechanisms.sampling",
    "Gaussian": "neyman.mechanisms.additive",
    "GaussianMixture": "neyman.mechanisms.gaussian_mixture",
    "HadamardResponse": "neyman.mechanisms.local_randomizers",
    "InverseSensitivity": "neyman.mechanisms.inverse_sensitivity",
    "Laplace": "neyman.mechanisms.additive",
    "LocalRandomizer": "neyman.mechanisms.randomized_response",
    "Marginals": "neyman.mechanisms.marginals",
    "MatrixMechanism": "neyman.mechanisms.matrix_mechanism.matrix_mechanism",
    "NoisyCyclicGradientDescent": "neyman.mechanisms.last_iterate",
    "NoisyGradientDescent": "neyman.mechanisms.last_iterate",
    "NoisyStochasticGradientDescent": "neyman.mechanisms.last_iterate",
    "NonPrivate": "neyman.mechanisms.full_disclosure",
    "PersonalBudgets": "neyman.mechanisms.personal_budgets",
    "ProposeTestRelease": "neyman.mechanisms.stability.propose_test_release",
    "PosteriorSample": "neyman.mechanisms.posterior_sample",
    "RandomAllocation": "neyman.mechanisms.random_allocation",
    "RandomSubset": "neyman.mechanisms.full_disclosure",
    "RandomizedResponse": "neyman.mechanisms.randomized_response",
    "ReportNoisyMax": "neyman.mechanisms.private_selection",
    "RoundedGaussian": "neyman.mechanisms.rounded_noise",
    "SelectBest": "neyman.mechanisms.tuning.winner",
    "Shuffled": "neyman.mechanisms.shuffling.shuffled_reports",
    "ShuffledBatches": "neyman.mechanisms.sampling",
    "SmoothNoise": "neyman.mechanisms.stability.smooth_noise",
    "SparseVector": "neyman.mechanisms.private_selection",
    "Staircase": "neyman.mechanisms.staircase",
    "Subsampled": "neyman.mechanisms.sampling",
    "UnaryEncoding": "neyman.mechanisms.local_randomizers",
}
"""The module of each type of mechanism."""

STRATEGIES = dict.fromkeys(("Binned", "Tree"), "neyman.mechanisms.matrix_mechanism.blocks")
"""The module of each kind of strategy outside the module of the base class."""

COMBINATORS = {
    "subsample": ("neyman.mechanisms.sampling", "subsampled"),
    "shuffled_batches": ("neyman.mechanisms.sampling", "ShuffledBatches"),
    "random_allocation": ("neyman.mechanisms.random_allocation", "RandomAllocation"),
    "shuffle": ("neyman.mechanisms.shuffling.shuffled_reports", "Shuffled"),
}
"""The module and the function of each method of `Mechanism` that builds another mechanism."""

Combinator = Literal["subsample", "shuffled_batches", "random_allocation", "shuffle"]


def load_type(name: str) -> None:
    """Import the module that defines a type of mechanism. Do nothing for an unknown name."""
    if name in MODULES:
        import_module(MODULES[name])
    elif name:
        type_of_package(name)


def load_strategy(kind: object) -> None:
    """Import the module that defines a kind of strategy. Do nothing for an unknown kind."""
    if isinstance(kind, str) and kind in STRATEGIES:
        import_module(STRATEGIES[kind])


def type_of_package(name: str) -> type[object] | None:
    """Return the mechanism type of this name from an installed package, or None if there is none.

    Raises:
        ValueError: the package cannot be imported, the entry point is not a class of mechanisms of
            this name, or several packages offer the name.
    """
    from importlib.metadata import entry_points  # takes longer to import than a mechanism

    if name in MODULES:
        return None
    offers = {one.value: one for one in entry_points(group=GROUP, name=name)}
    if not offers:
        return None
    if len(offers) > 1:
        raise ValueError(f"type = {name!r} is offered by several packages: {', '.join(offers)}")
    ((value, offer),) = offers.items()
    try:
        kind = offer.load()
    except Exception as error:
        raise ValueError(f"type = {name!r}: {value} cannot be imported: {error!r}") from error
    if not isinstance(kind, type) or kind.__name__ != name or not hasattr(kind, "tradeoff"):
        raise ValueError(f"type = {name!r}: {value} is not a class of mechanisms of this name")
    return kind


def combined(name: Combinator, kind: type[T], *arguments: object) -> T:
    """Call the function behind a method of `Mechanism`, and check that it returns a ``kind``."""
    module, function = COMBINATORS[name]
    built = getattr(import_module(module), function)(*arguments)
    assert isinstance(built, kind)
    return built
