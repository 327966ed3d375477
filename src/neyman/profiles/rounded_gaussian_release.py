"""One release of rounded normal noise: its own finite law on both sides."""

from __future__ import annotations

from neyman.losses.composition import Composition
from neyman.losses.rounded_gaussian import RoundedGaussianLoss
from neyman.profiles.combination import BracketProfile
from neyman.profiles.one_release import profile_of_one
from neyman.profiles.profile import Profile
from neyman.profiles.selection import select


@profile_of_one.register
def _(loss: RoundedGaussianLoss) -> Profile | None:
    """Exact but for rounding, where every threshold is listed."""
    if loss.exact is None:
        return None
    lower, upper = (select(Composition.of([(law, 1)])) for law in (loss.lower, loss.exact))
    return BracketProfile(lower, upper, loss.how)
