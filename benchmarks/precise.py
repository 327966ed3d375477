"""Delta, epsilon and power in some 30 digits, independent of Neyman: a contour in mpmath.

    delta(eps) = (1 / 2 pi i) * integral over Re z = c of e^{K(z) - eps z} / (z (z+1)) dz

by a trapezoid rule on the line, K(z) = log E_P[e^{zL}] of each part by its own sum in 64 digits.
Nothing is certified here; instead each number is computed on two lines with different steps and
kept as far as both agree (`AGREED` digits, else an ArithmeticError).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from typing import Any

import mpmath as mp
import numpy as np

BITS = 224  # of fixed point, for numbers within [-1, 1]
AGREED = 30  # digits that are written
DROP = 92.0  # e^-92 is 40 digits: what is left out, beside what is kept
SLACK = 16.0  # log of the cancellation that is allowed
mp.mp.dps = 64

Number = Any  # of mpmath, whose annotations are narrower than what it does
mpf: Any = mp.mpf
mpc: Any = mp.mpc


def number(x: Fraction | str) -> Number:
    """The float that a library is given, taken as exact."""
    return mpf(float(Fraction(x)))


def rational(x: Fraction) -> Number:
    """An exact rational, which a library is given as such."""
    return mpf(x.numerator) / x.denominator


class Part(ABC):
    """One independent loss."""

    @abstractmethod
    def rough(self, c: np.ndarray) -> np.ndarray:
        """K(c) in floats, to steer by."""

    @abstractmethod
    def size(self, c: float, u: np.ndarray) -> np.ndarray:
        """log |phi(u)| in floats, to steer by: phi(u) = e^{K(c + iu) - K(c)}."""

    @abstractmethod
    def line(self, c: Number, h: Number, count: int) -> tuple[Number, list[Number]]:
        """K(c), and phi at 0, h, 2h, ...: full precision."""


class Smooth(Part):
    """A loss whose e^K is written down: Gaussian or Laplace."""

    def __init__(self, log_mgf: Callable) -> None:
        self._log_mgf = log_mgf

    def rough(self, c):
        return np.array([float(self._log_mgf(mp, mpf(x))) for x in c])

    def size(self, c, u):
        at = np.array([complex(self._log_mgf(mp, mpc(c, x))).real for x in u])
        return at - float(self._log_mgf(mp, mpf(c)))

    def line(self, c, h, count):
        base = self._log_mgf(mp, c)
        return base, [mp.exp(self._log_mgf(mp, mpc(c, n * h)) - base) for n in range(count)]


def gaussian(mu_squared: Number) -> Part:
    """N(mu, 1) against N(0, 1)."""
    return Smooth(lambda _, z: mu_squared * z * (z + 1) / 2)


def laplace(a: Number) -> Part:
    """Two Laplace distributions a scales apart: the two tails and the stretch between."""

    def log_mgf(_, z):
        between = (mp.exp(a * z) - mp.exp(-a * (z + 1))) / (2 * z + 1)
        return mp.log((mp.exp(a * z) + mp.exp(-a * (z + 1)) + between) / 2)

    return Smooth(log_mgf)


class Summed(Part):
    """E_P[e^{zL}] as a sum over points of weight * e^{z loss}."""

    def line(self, c, h, count):
        """In fixed point: the weights add up to 1, and each node turns each by e^{ih loss}."""
        logs, losses = self.points(c, h * count)
        top = max(logs)
        weights = [mp.exp(x - top) for x in logs]
        total = mp.fsum(weights)

        def fixed(values):
            return np.array([int(mpf(mp.floor(mp.ldexp(x, BITS) + 0.5))) for x in values], object)

        real, imaginary = fixed([w / total for w in weights]), fixed([mpf(0)] * len(weights))
        turns = [mp.cos_sin(h * x) for x in losses]
        cosine, sine = fixed([t[0] for t in turns]), fixed([t[1] for t in turns])
        phi = []
        for _ in range(count):
            sums = (mp.ldexp(mpf(int(x.sum())), -BITS) for x in (real, imaginary))
            phi.append(mpc(*sums))
            real, imaginary = (
                (real * cosine - imaginary * sine) >> BITS,
                (real * sine + imaginary * cosine) >> BITS,
            )
        return top + mp.log(total), phi

    @abstractmethod
    def points(self, c: Number, far: Number) -> tuple[list[Number], list[Number]]:
        """Logarithms of weight * e^{c loss}, and the losses; good for |Im z| up to far."""


class Sampled(Summed):
    """(1-q) N(0,1) + q N(mu,1) against N(0,1) (removed), or the other way round (added).

    With R = 1 - q + q e^{mu y - mu^2/2}: E over y ~ N(0,1) of R^w, w = z + 1 or -z. The integrand
    is analytic for |Im y| < pi / mu, so a trapezoid sum in y converges geometrically.
    """

    def __init__(self, mu: Number, q: Number, removed: bool) -> None:
        self.mu, self.q, self.removed = mu, q, removed

    @cached_property
    def _floats(self) -> tuple[float, float]:
        return float(self.mu), float(self.q)

    def _grid(self, most: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """y, log phi(y) and log R(y) in floats, wide enough for tilts up to ``most``."""
        mu, q = self._floats
        y = np.arange(-40.0, (mu * (most + 1) if self.removed else 0.0) + 20.0, 0.03)
        ratio = np.logaddexp(math.log1p(-q), math.log(q) + mu * y - mu * mu / 2)
        return y, -y * y / 2 - 0.5 * math.log(math.tau) + math.log(0.03), ratio

    def _power(self, c):
        return c + 1 if self.removed else -c

    def rough(self, c):
        _, normal, ratio = self._grid(float(np.max(c)))
        return np.array([np.logaddexp.reduce(normal + self._power(x) * ratio) for x in c])

    def size(self, c, u):
        _, normal, ratio = self._grid(c)
        weight = normal + self._power(c) * ratio
        weight = np.exp(weight - np.logaddexp.reduce(weight))
        mask = weight > 1e-30
        at = np.array([abs(np.dot(weight[mask], np.exp(1j * x * ratio[mask]))) for x in u])
        return np.log(np.maximum(at, 1e-300))

    def points(self, c, far):
        mu = self._floats[0]
        w, u = float(self._power(c)), float(far)
        # Shifted by a, |R| >= R cos(mu a / 2) and |arg R| <= mu a: the widest step over a.
        a = np.linspace(0.01, 0.99, 99) * math.pi / mu
        shrink = min(w, 0.0) * np.log(np.cos(np.minimum(mu * a / 2, 1.57)))
        step = mpf(float(np.max(math.tau * a / (DROP + 35 + a * a / 2 + u * mu * a + shrink))))
        y, normal, ratio = self._grid(float(c))
        height = normal + w * ratio
        selection = y[height > height.max() - DROP - 30]
        first, last = math.floor(selection[0] / step) - 1, math.ceil(selection[-1] / step) + 1
        ys = [n * step for n in range(first, last + 1)]
        start = 1 - self.q
        ratios = [mp.log(start + self.q * mp.exp(self.mu * (y - self.mu / 2))) for y in ys]
        power = self._power(c)
        scale = mp.log(step) - mp.log(2 * mp.pi) / 2
        logs = [scale - y * y / 2 + power * r for y, r in zip(ys, ratios, strict=True)]
        return logs, ratios if self.removed else [-r for r in ratios]


class Lattice(Summed):
    """Discrete Gaussian noise about 1 against about 0: the loss at x is (2x - 1) / (2 sigma^2)."""

    def __init__(self, sigma: Fraction) -> None:
        self.variance = rational(sigma**2)
        reach = 25 * float(sigma) + 60
        self.x = range(-math.ceil(reach), math.ceil(3 * reach))
        self._losses = [(2 * x - 1) / (2 * self.variance) for x in self.x]
        logs = [-((x - 1) ** 2) / (2 * self.variance) for x in self.x]
        total = mp.log(mp.fsum(mp.exp(v) for v in logs))
        self._logs = [v - total for v in logs]

    @cached_property
    def _floats(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array(self._logs, float), np.array(self._losses, float)

    def rough(self, c):
        logs, losses = self._floats
        return np.array([np.logaddexp.reduce(logs + x * losses) for x in c])

    def size(self, c, u):
        logs, losses = self._floats
        weight = np.exp(logs + c * losses - self.rough(np.array([c])))
        mask = weight > 1e-30
        at = np.array([abs(np.dot(weight[mask], np.exp(1j * x * losses[mask]))) for x in u])
        return np.log(np.maximum(at, 1e-300))

    def points(self, c, far):
        logs = [p + c * x for p, x in zip(self._logs, self._losses, strict=True)]
        top = max(logs)
        selection = [i for i, v in enumerate(logs) if v > top - DROP - 60]
        return [logs[i] for i in selection], [self._losses[i] for i in selection]


Parts = list[tuple[Part, int]]
Place = tuple[float, float, float]  # c, step, how far


class Steering:
    """Where to put the line, in floats: nothing but cost depends on it."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.c, self.k = np.zeros(0), np.zeros(0)
        self._extend()

    def _extend(self) -> bool:
        """A few tilts more; False at the end of the range."""
        if len(self.c) >= 500:
            return False
        new = 0.02 * 1.03 ** np.arange(len(self.c), len(self.c) + 50)
        self.k = np.append(self.k, sum(n * p.rough(new) for p, n in self.parts))
        self.c = np.append(self.c, new)
        return True

    def start(self, log_target: float, lift: int) -> float:
        """Chernoff's upper bound on eps: lift 0 for log delta(eps), lift 1 for log Q(L > eps)."""
        while True:
            kappa = 0.0 if lift else self.c * np.log(self.c) - (1 + self.c) * np.log1p(self.c)
            result = (self.k + kappa - log_target) / (self.c + lift)
            if np.argmin(result) < len(result) - 8 or not self._extend():
                return float(np.min(result))

    def place(self, eps: float, log_target: float, lift: int, avoid: float = 0.0) -> Place:
        """The line with the widest step, among those that cancel little.

        The copies of delta at eps + 2 pi n / h are, beside delta, at most e^{-2 pi c / h} / delta
        for n < 0, and by Chernoff's bound at another c' for n > 0.
        """
        while self.k[-1] - self.c[-1] * eps - log_target < 200 and self._extend():
            pass
        c, above = self.c, DROP + np.maximum(self.k - self.c * eps - log_target, 1 - DROP)
        height = self.k - c * eps - np.log(c + 1) - (0 if lift else 1) * np.log(c)
        height -= height.min()
        steps = [math.tau * np.max((c[i + 1 :] - c[i]) / above[i + 1 :]) for i in range(len(c) - 1)]
        h = np.minimum(math.tau * c[:-1] / (DROP - log_target), steps)
        good = (height[:-1] < SLACK) & (np.abs(np.log(c[:-1] / (avoid or 1e-9))) > 0.05)
        best = int(np.argmax(np.where(good, h, 0.0)))
        chosen, step = float(c[best]), float(h[best])
        return chosen, step, self.reach(chosen)

    def reach(self, c: float) -> float:
        """Where the tilted characteristic function has died out, as far as a scan shows."""
        u = 8.0
        while True:
            at = np.linspace(u / 100, 2 * u, 200)
            size = sum(n * p.size(c, at) for p, n in self.parts)
            large = np.nonzero(size + np.log(c * (c + 1) / (c * c + at * at)) > -DROP - SLACK)[0]
            last = int(large[-1]) if len(large) else 0
            if 20 < last < 120:
                return float(at[last + 2])
            u = u / 4 if last <= 20 else 1.6 * u


class Line:
    """The trapezoid rule on Re z = c."""

    def __init__(self, parts: Parts, c: float, h: float, reach: float) -> None:
        count = math.ceil(reach / h) + 1
        self.c, self.h = mpf(c), mpf(h)
        self.k = mpf(0)
        self.phi = [mpf(h) / mp.pi] * count
        self.phi[0] /= 2
        for part, n in parts:
            k, phi = part.line(self.c, self.h, count)
            self.k += n * k
            self.phi = [a * b**n for a, b in zip(self.phi, phi, strict=True)]
        self.z = [mpc(self.c, n * self.h) for n in range(count)]
        self._kernels = {
            "delta": [f / (z * (z + 1)) for f, z in zip(self.phi, self.z, strict=True)],
            "P": [f / z for f, z in zip(self.phi, self.z, strict=True)],
            "Q": [f / (z + 1) for f, z in zip(self.phi, self.z, strict=True)],
            "p": self.phi,
        }

    def __call__(self, kernel: str, eps: Number) -> Number:
        """delta(eps); P(L > eps); e^eps Q(L > eps); or P's density of the loss at eps."""
        turn, at = mp.expj(-self.h * eps), mpc(1)
        terms = []
        for g in self._kernels[kernel]:
            terms.append((g * at).real)
            at *= turn
        return mp.exp(self.k - self.c * eps) * mp.fsum(terms)


def newton(f: Callable[[Number], tuple[Number, Number]], x: Number) -> Number:
    """The root, by Newton's rule."""
    for _ in range(60):
        value, slope = f(x)
        move = value / slope
        x -= max(min(move, mpf(1)), mpf(-1))
        if abs(move) < mpf(10) ** -45 * (1 + abs(x)):
            return x
    raise ArithmeticError("Newton's rule does not settle")


def on_two_lines(
    parts: Parts, target: Number, lift: int, find: Callable[[Line, Number], tuple[Number, Number]]
) -> str:
    """What is sought (and its eps): steered by a first line, computed on two; where they agree."""
    steering = Steering(parts)
    log_target = float(mp.log(target))
    eps, answers = mpf(steering.start(log_target, lift)), []
    avoid = 0.0
    for first in (True, False, False):
        place = steering.place(float(eps), log_target, lift, avoid)
        eps, answer = find(Line(parts, *place), eps)
        answers.append(answer)
        avoid = 0.0 if first else place[0]
    return agreed(*answers[1:])


def agreed(a: Number, b: Number, digits: int = AGREED + 1) -> str:
    """The first digits, on which both answers agree."""
    if abs(a - b) > mpf(10) ** -digits * abs(a):
        raise ArithmeticError(f"two ways disagree: {mp.nstr(a, 40)} and {mp.nstr(b, 40)}")
    return mp.nstr(a, AGREED, strip_zeros=False)


def epsilon(parts: Parts, delta: Number) -> str:
    """The epsilon of one ordered pair."""
    goal = mp.log(delta)

    def find(line: Line, start: Number) -> tuple[Number, Number]:
        def excess(eps):
            value = line("delta", eps)
            return mp.log(value) - goal, -line("Q", eps) / value

        eps = newton(excess, start)
        return eps, eps

    return on_two_lines(parts, delta, 0, find)


def power(parts: Parts, level: Number) -> str:
    """The power of the best test of one ordered pair: P(L > eps) where Q(L > eps) is the level."""
    goal = mp.log(level)

    def find(line: Line, start: Number) -> tuple[Number, Number]:
        def excess(eps):
            value = line("Q", eps)
            return mp.log(value) - eps - goal, -line("p", eps) / value

        eps = newton(excess, start)
        return eps, line("P", eps)

    return on_two_lines(parts, level, 1, find)
