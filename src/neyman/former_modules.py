"""Let former paths of modules still work.

`import neyman.plots.figures` returns the module `neyman.display.plots.figures` itself, not a copy,
and warns with the new path.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from importlib.abc import Loader

_PROFILE_FAMILIES = {
    "closed_forms": ("bounded_range_releases", "closed_form"),
    "contour": ("complement_line", "continuous_parts", "contour"),
    "lattice": ("convolution", "lattice"),
    "sampled_steps": (
        "bracket_sum",
        "few_steps",
        "log_sum_density",
        "one_subsampled_step",
        "real_sums",
        "step_grid",
        "step_nodes",
    ),
}
_SUBPACKAGES = {
    "accounting": ("integrations", "optimality", "semantics"),
    "analysis": ("estimators", "hypothesis_tests", "training"),
    "cli": ("demo",),
    "curves": ("divergences", "losses", "profiles", "tradeoff"),
    "display": ("explorer", "plots", "report"),
    "mechanisms": ("canonical", "matrix_mechanism", "shuffling", "stability", "tuning"),
    "publishing": ("consistency", "engines", "plan", "planning", "release", "synthetic", "tables"),
}
FORMER_MODULES: dict[str, str] = {
    f"neyman.{name}": f"neyman.{package}.{name}"
    for package, names in _SUBPACKAGES.items()
    for name in names
} | {
    "neyman.estimators.namespace": "neyman.estimate",
    "neyman.profiles.largest_step": "neyman.curves.profiles.sampled_steps.many_steps",
    "neyman.plan.document": "neyman.publishing.plan.plan_fields",
    "neyman.publishing.plan.document": "neyman.publishing.plan.plan_fields",
    **{
        f"neyman.profiles.{name}": f"neyman.curves.profiles.{family}.{name}"
        for family, names in _PROFILE_FAMILIES.items()
        for name in names
    },
}
"""The new path of each moved package or file. Modules below a package moved with it."""


def current_module(path: str) -> str | None:
    """Return the new path of a moved module. Return None if the module did not move.

    Args:
        path: a dotted path, such as "neyman.plots.figures".
    """
    former = path
    while former not in FORMER_MODULES:
        former = former.rpartition(".")[0]
        if not former:
            return None
    return FORMER_MODULES[former] + path[len(former) :]


class _CurrentModule:
    """Load the module at its new path."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        from importlib import import_module

        path = current_module(spec.name)
        assert path is not None
        module = import_module(path)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # replaces the spec of the former path


class _FormerModules:
    """Find modules at their former paths."""

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> ModuleSpec | None:
        current = current_module(fullname) if fullname.startswith("neyman.") else None
        if current is None or find_spec(current) is None:
            return None
        import warnings

        warnings.warn(f"{fullname} moved to {current}", DeprecationWarning, stacklevel=2)
        return ModuleSpec(fullname, cast("Loader", _CurrentModule()))


def add_former_modules() -> None:
    """Let imports find former paths.

    This finder must be first. Another finder would load a second copy of a file below a moved
    package.
    """
    if not any(isinstance(finder, _FormerModules) for finder in sys.meta_path):
        sys.meta_path.insert(0, _FormerModules())
