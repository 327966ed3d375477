"""Privacy profile of a single release: one closed form for each type of loss."""

from __future__ import annotations

from functools import singledispatch

from neyman.losses.composition import Composition
from neyman.losses.loss import Part
from neyman.profiles.profile import Profile
from neyman.profiles.selection import register

__all__ = ["profile_of_one"]


@singledispatch
def profile_of_one(loss: Part) -> Profile | None:
    """Return the privacy profile of one release of this loss, or None without a closed form.

    Register an implementation for a type of loss with ``profile_of_one.register``.
    """
    return None


@register(50, "one release whose profile has a closed form")
def _one_release(composition: Composition) -> Profile | None:
    if len(composition.parts) != 1 or composition.parts[0][1] != 1:
        return None
    return profile_of_one(composition.parts[0][0])
