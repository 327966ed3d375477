"""Privacy profile between two others: lower bounds from one, upper bounds from the other."""

from __future__ import annotations

from neyman.profiles.profile import Interval, Profile

__all__ = ["BracketProfile"]


class BracketProfile(Profile):
    """Lower bounds from one profile, upper bounds from another.

    Args:
        lower: of a sum of losses that the one in question dominates.
        upper: of a sum of losses that dominates it.
        how: what holds it between them, in words.
    """

    def __init__(self, lower: Profile, upper: Profile, how: str) -> None:
        self.method = f"{upper.method}, {how}"
        self._lower, self._upper = lower, upper

    def log_delta(self, epsilon: float) -> Interval:
        """From both."""
        high = self._upper.log_delta(epsilon)[1]
        return min(self._lower.log_delta(epsilon)[0], high), high

    def log_power(self, log_level: float) -> Interval:
        """From both."""
        high = self._upper.log_power(log_level)[1]
        return min(self._lower.log_power(log_level)[0], high), high

    def epsilon_near(self, log_delta: float) -> float:
        """That of the upper one."""
        return self._upper.epsilon_near(log_delta)

    def mu(self) -> Interval | None:
        """Unknown."""
        return None
