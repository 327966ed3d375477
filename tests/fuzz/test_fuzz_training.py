"""Steps of training beyond one: random allocation, fixed-size and replace-one samples, iterates."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise, product

import mpmath as mp
import numpy as np
from scipy.special import ndtr
from truth import Array, Tally, cases, draws, log_uniform, tally

import neyman as ny

__all__ = ["tally"]

NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)


def panels(edges: list[float], widest: float) -> tuple[Array, Array]:
    """Nodes and weights of an integral between increasing places, where the integrand may bend."""
    places, weights = [], []
    for a, b in pairwise(sorted(set(edges))):
        cuts = np.linspace(a, b, max(1, math.ceil((b - a) / widest)) + 1)
        half = np.diff(cuts)[:, None] / 2
        places.append((cuts[:-1, None] + half * (1 + NODES)).ravel())
        weights.append((half * WEIGHTS).ravel())
    return np.concatenate(places), np.concatenate(weights)


def normal(x: Array) -> Array:
    return np.exp(-x * x / 2) / math.sqrt(math.tau)


# Random allocation: with y_t = e^{mu x_t - mu^2 / 2}, the loss is log of the mean of the y_t.


def one_allocated_batch_more(
    mu: float, partial: Array, batches: int, t: Array
) -> tuple[Array, Array]:
    """E (S/T - t)+ and E (1 - t S/T)+ of the last batch; the others sum to ``partial``."""
    results = []
    for level, sign in ((batches * t, 1), (batches / t, -1)):
        rest = level - partial
        with np.errstate(divide="ignore", invalid="ignore"):
            k = np.where(rest > 0, (np.log(rest) + mu * mu / 2) / mu, -np.inf)
        if sign > 0:
            results.append((partial / batches - t) * ndtr(-k) + ndtr(mu - k) / batches)
        else:
            results.append((1 - t * partial / batches) * ndtr(k) - t / batches * ndtr(k - mu))
    return results[0], results[1]


def allocated(mu: float, batches: int, t: float) -> tuple[float, float]:
    """Both deltas of one pass over two or three batches, by integrals over all but the last."""

    def grown(x: Array) -> Array:
        return np.exp(mu * x - mu * mu / 2)

    def bend(level: float) -> float:
        return (math.log(level) + mu * mu / 2) / mu if level > 0 else -math.inf

    edges = [-9.5, 9.5 + mu]
    inside = [v for v in (bend(batches * t), bend(batches / t)) if edges[0] < v < edges[1]]
    x, w = panels([*edges, *inside], 0.5)
    if batches == 2:
        both = one_allocated_batch_more(mu, grown(x), 2, np.array(t))
        return tuple(float((w * normal(x)) @ one) for one in both)  # pyright: ignore[reportReturnType]
    total = [0.0, 0.0]
    for a, weight in zip(x, w * normal(x), strict=True):
        left = [bend(level - math.exp(mu * a - mu * mu / 2)) for level in (3 * t, 3 / t)]
        inner = [v for v in left if edges[0] < v < edges[1]]
        y, v = panels([*edges, *inner], 2.0)
        both = one_allocated_batch_more(mu, grown(a) + grown(y), 3, np.array(t))
        for i in (0, 1):
            total[i] += float(weight * ((v * normal(y)) @ both[i]))
    return total[0], total[1]


def test_allocated_batches_against_integrals(tally: Tally):
    """Two and three batches of a pass: the worse order is between both ends."""
    draw = draws("random allocation")
    for _ in cases(4):
        mu = Fraction(log_uniform(draw, 0.1, 4)).limit_denominator(1000)
        batches = draw.choice([2, 2, 2, 3])
        f = ny.Gaussian(1 / mu).random_allocation(batches).tradeoff()
        for _ in range(3):
            e = draw.uniform(0, 3 * float(mu))
            truth = max(allocated(float(mu), batches, math.exp(e)))
            slack = 1e-11 + 1e-9 * truth
            case = f"allocation, mu {mu}, {batches} batches, epsilon {e}"
            tally.holds(f.delta(e), truth - slack, truth + slack, case, truth > 1e-9)


def rounded_passes(mu: float, batches: int, passes: int, e: float, side: int) -> float:
    """A bound on the larger delta: losses of a pass rounded to a lattice, in one order each."""
    # A lattice for S: y is rounded to the side, and so is the loss of a pass. E (e^L - t)+ and
    # E (1 - t e^L)+ grow and fall with S, so that each side is a bound.
    cells, top = 1 << 14, batches + 60.0 * math.exp(min(mu * 4, 3))
    h = top / cells
    cuts = h * np.arange(cells + 1)
    with np.errstate(divide="ignore"):
        below = ndtr((np.log(cuts) + mu * mu / 2) / mu)
    result = 0.0
    for order in (1, -1):  # the loss grows with S, or falls
        up = side * order > 0
        mass = np.zeros(cells + 1)
        mass[int(up) : cells + int(up)] = np.diff(below)
        size = 1 << 15
        law = np.fft.irfft(np.fft.rfft(mass, size) ** batches, size)[: cells + 1]
        law = np.maximum(law, 0)
        place = np.maximum(h * np.arange(cells + 1) / batches, 1e-9)
        loss = np.log(place)
        # Under P in this order.
        p = law * place if order > 0 else law
        step = 2e-3
        index = (order * loss / step + (side > 0) * (1 - 1e-12)) // 1
        low = int(index.min())
        one = np.bincount((index - low).astype(int), p)
        width = 1 << int(np.ceil(np.log2(passes * len(one) + 1)))
        total = np.fft.irfft(np.fft.rfft(one, width) ** passes, width)
        values = step * (passes * low + np.arange(width))
        good = values > e
        result = max(result, float((total[good] * -np.expm1(e - values[good])).sum()))
    return result


# One step's delta in closed form, over and over: delta_T(e) = E delta_{T-1}(e - L).


NEAR = [sign * 6.0**k for sign in (-1, 1) for k in range(-10, 1)]


class Step:
    """A step with a shift of mu on a share of the data; its delta is sharp next to epsilon 0."""

    def __init__(self, mu: float, share: float) -> None:
        self.mu, self.share = mu, share

    def law(self, bend: float) -> tuple[Array, Array]:
        """Losses and masses under P, for integrals of what is sharp where the loss is ``bend``."""
        raise NotImplementedError

    def delta(self, e: Array) -> Array:
        """Of one step, also below 0."""
        raise NotImplementedError


def gaussian_delta(mu: float, e: Array) -> Array:
    return ndtr(mu / 2 - e / mu) - np.exp(np.minimum(e, 600)) * ndtr(-mu / 2 - e / mu)


class FixedSize(Step):
    """C_p(G_mu): where f_p tells more than its inverse it is f_p, and in the middle a line."""

    def law(self, bend: float) -> tuple[Array, Array]:
        """The inner loss mu z - mu^2 / 2 is positive; there it is g, and -g under Q."""
        low, high = self.mu / 2, self.mu + 9.5
        at = math.log1p(math.expm1(min(abs(bend), 600)) / self.share) / self.mu + self.mu / 2
        z, w = panels([low, high, *(v for d in NEAR if low < (v := at + d) < high)], 0.5)
        g = np.log1p(self.share * np.expm1(self.mu * z - self.mu**2 / 2))
        q = w * normal(z)
        mass = np.concatenate([q * np.exp(g), q])
        return np.concatenate([g, -g, [0.0]]), np.append(mass, 1 - mass.sum())

    def delta(self, e: Array) -> Array:
        """C_p has p delta(log(1 + (e^e - 1) / p)) for e > 0, and the symmetric value below 0."""
        away = np.abs(e)
        inner = np.log1p(np.expm1(away) / self.share)
        above = self.share * gaussian_delta(self.mu, inner)
        return np.where(e >= 0, above, -np.expm1(-away) + np.exp(-away) * above)


class ReplaceOne(Step):
    """(1 - q) N(0) + q N(mu) against (1 - q) N(0) + q N(-mu)."""

    def place(self, e: Array) -> Array:
        """Where a + b u = t (a + b / u), u = e^{mu x}: there the loss is e."""
        t = np.exp(e)
        a, b = 1 - self.share, self.share * math.exp(-self.mu * self.mu / 2)
        half = a * (t - 1) / (2 * b)
        far = np.abs(half) + np.sqrt(half * half + t)
        u = np.where(half > 0, far, t / far)
        return np.log(u) / self.mu

    def law(self, bend: float) -> tuple[Array, Array]:
        """Normal densities on both sides."""
        far, at, q = 9.5 + self.mu, float(self.place(np.array(bend))), self.share
        x, w = panels([-far, far, *(v for d in NEAR if -far < (v := at + d) < far)], 0.5)
        p = (1 - q) * normal(x) + q * normal(x - self.mu)
        other = (1 - q) * normal(x) + q * normal(x + self.mu)
        return np.log(p / other), w * p

    def delta(self, e: Array) -> Array:
        """The masses above the place."""
        x, q, mu = self.place(e), self.share, self.mu
        p_above = (1 - q) * ndtr(-x) + q * ndtr(mu - x)
        return p_above - np.exp(e) * ((1 - q) * ndtr(-x) + q * ndtr(-mu - x))


def composed(step: Step, times: int, e: float) -> float:
    """Delta of two or three steps."""
    loss, mass = step.law(e)
    if times == 2:
        return float(mass @ step.delta(e - loss))
    heavy = mass > 1e-14
    return sum(
        float(m) * composed(step, 2, e - float(x))
        for x, m in zip(loss[heavy], mass[heavy], strict=True)
    )


def dominated(step: Step, times: int, e: float, side: int) -> float:
    """A bound on delta of many steps: losses rounded to a lattice on one side, and added."""
    h = 2e-4
    loss, mass = step.law(0.0)
    index = np.ceil(loss / h) if side > 0 else np.floor(loss / h)
    # Nodes stand for their surroundings: a little more on the side.
    index = index + side
    low = int(index.min())
    one = np.bincount((index - low).astype(int), mass)
    width = 1 << int(np.ceil(np.log2(times * len(one) + 1)))
    total = np.fft.irfft(np.fft.rfft(one, width) ** times, width)
    values = h * (times * low + np.arange(width))
    good = values > e
    return float((np.maximum(total[good], 0) * -np.expm1(e - values[good])).sum())


def test_steps_on_samples_against_integrals(tally: Tally):
    """Fixed size and replace-one, two steps, and three at larger sizes: delta and epsilon."""
    draw = draws("sampled steps")
    for number in cases(6):
        mu = Fraction(log_uniform(draw, 0.15, 4)).limit_denominator(1000)
        times = 3 if number % 12 == 11 else 2
        noise = ny.Gaussian(1 / mu)
        if number % 2:
            population = draw.choice([10, 100, 10_000])
            size = draw.randint(1, population // 2)
            mechanism = noise.subsample(size=size, population=population)
            step: Step = FixedSize(float(mu), size / population)
        else:
            rate = log_uniform(draw, 1e-3, 0.6)
            mechanism = noise.subsample(rate=rate, neighboring="replace-one")
            step = ReplaceOne(float(mu), rate)
        f = (mechanism * times).tradeoff()
        for _ in range(2):
            e = draw.uniform(0, 1) ** 2 * times * float(mu)
            truth = composed(step, times, e)
            slack = 1e-12 + 1e-9 * truth
            case = f"{mechanism!r} * {times}, epsilon {e}"
            tally.holds(f.delta(e), truth - slack, truth + slack, case, truth > 1e-9)
            if 1e-9 < truth < 0.5 and e > 0:
                bound = f.epsilon(truth)
                rate_of_fall = max(truth - composed(step, times, e * 1.001), 1e-30) / (e * 1e-3)
                room = 2 * slack / rate_of_fall
                tally.holds(bound, e - room, e + room, case + " inverted")


def test_many_steps_on_samples_against_rounded_losses(tally: Tally):
    """Fixed size and replace-one, 4 to 200 steps: the answer meets what rounded losses allow."""
    draw = draws("many sampled steps")
    for number in cases(3):
        mu = Fraction(log_uniform(draw, 0.2, 3)).limit_denominator(1000)
        times = round(log_uniform(draw, 4, 200))
        noise = ny.Gaussian(1 / mu)
        if number % 2:
            population = 1000
            size = round(log_uniform(draw, 1, 400))
            mechanism = noise.subsample(size=size, population=population)
            step: Step = FixedSize(float(mu), size / population)
            spread = size / population
        else:
            spread = log_uniform(draw, 1e-3, 0.4)
            mechanism = noise.subsample(rate=spread, neighboring="replace-one")
            step = ReplaceOne(float(mu), spread)
        f = (mechanism * times).tradeoff()
        e = draw.uniform(0, 2) * spread * float(mu) * math.sqrt(times)
        low, high = (dominated(step, times, e, side) for side in (-1, 1))
        case = f"{mechanism!r} * {times}, epsilon {e}"
        tally.holds(f.delta(e), low - 1e-10, high + 1e-10, case)


def test_passes_of_random_allocation_against_rounded_losses(tally: Tally):
    """Many batches and several passes: the answer meets what rounded losses allow."""
    draw = draws("allocated passes")
    for _ in cases(3):
        mu = Fraction(log_uniform(draw, 0.2, 0.9)).limit_denominator(100)
        batches, passes = round(log_uniform(draw, 2, 60)), draw.choice([1, 2, 5])
        f = (ny.Gaussian(1 / mu).random_allocation(batches) * passes).tradeoff()
        e = draw.uniform(0, 2) * float(mu) * math.sqrt(passes / batches)
        low, high = (rounded_passes(float(mu), batches, passes, e, s) for s in (-1, 1))
        case = f"allocation, mu {mu}, {batches} batches, {passes} passes, epsilon {e}"
        tally.holds(f.delta(e), low - 1e-9, high + 1e-9, case)


# Last iterates


def forgetting(c: Fraction, steps: int) -> tuple[mp.mpf, mp.mpf]:
    """The sum of c^k and of c^2k."""
    factor = mp.mpf(c.numerator) / c.denominator
    powers = [factor**k for k in range(steps)]
    return mp.fsum(powers), mp.fsum(p * p for p in powers)


def test_last_iterates_against_quadratic_losses(tally: Tally):
    """Full gradients are exact; cyclic batches cover every place of the record."""
    draw = draws("last iterates")
    for _ in cases(20):
        c = Fraction(1 - draw.choice([1.0, draw.random(), log_uniform(draw, 1e-9, 1)]))
        c = draw.choice([c, Fraction(0), Fraction(1)])
        n, steps = draw.randint(1, 500), round(log_uniform(draw, 1, 60))
        sigma, moved = (Fraction(log_uniform(draw, 0.01, 10)) for _ in range(2))
        s = mp.mpf((moved / sigma / n).numerator) / (moved / sigma / n).denominator
        last = ny.NoisyGradientDescent(n, steps, sigma, moved, contraction=c)
        first, second = forgetting(c, steps)
        truth = s * first / mp.sqrt(second)
        tally.holds(last.tradeoff().gdp(), truth * (1 - 1e-40), truth * (1 + 1e-40), last)
        square = mp.mpf(last.rho().numerator) / last.rho().denominator * 2
        assert truth**2 * (1 - mp.mpf(10) ** -48) <= square <= truth**2 * (1 + mp.mpf(10) ** -45)
        batches, epochs = draw.randint(1, 8), draw.randint(1, 8)
        cyclic = ny.NoisyCyclicGradientDescent(3 * batches, 3, epochs, sigma, moved, contraction=c)
        mu = cyclic.tradeoff().gdp()
        s = s * n / 3
        factor = mp.mpf(c.numerator) / c.denominator
        for place in range(batches):  # steps after the record's batch in the last epoch
            shift = s * mp.fsum(factor ** (place + batches * k) for k in range(epochs))
            attack = shift / mp.sqrt(forgetting(c, batches * epochs)[1])
            tally.holds(mu, attack * (1 - mp.mpf(10) ** -15), math.inf, cyclic)


def test_stochastic_iterates_against_quadratic_losses(tally: Tally):
    """The mixture over all batches on a quadratic loss tells no more than is claimed."""
    draw = draws("stochastic iterates")
    for _ in cases(6):
        c, s = draw.random(), log_uniform(draw, 0.1, 3)
        steps, n = draw.randint(1, 4), draw.randint(2, 20)
        batch = draw.randint(1, n)
        p = batch / n
        last = ny.NoisyStochasticGradientDescent(n, batch, steps, 1 / s, batch, contraction=c)
        f = last.tradeoff()
        noise = math.sqrt(sum(c ** (2 * k) for k in range(steps)))
        ways = list(product((0, 1), repeat=steps))
        chance = np.array([math.prod(p if b else 1 - p for b in way) for way in ways])
        shift = np.array([sum(b * c**k for k, b in enumerate(way)) for way in ways]) * s / noise
        reach = float(shift.max()) + 9
        x, w = panels([-reach, 0.0, reach], 0.25)
        for move in (shift / 2, shift):  # moved both ways, or to one side only
            other = -move if move is not shift else 0 * move
            laws = [w * (normal(x[:, None] - m) @ chance) for m in (move, other)]
            for e in (0.0, draw.uniform(0, 2)):
                t = math.exp(e)
                attack = float(np.maximum(laws[0] - t * laws[1], 0).sum())
                tally.holds(f.delta(e), attack * (1 - 1e-6) - 1e-9, math.inf, last)


def test_iterates_in_an_interval_against_walks(tally: Tally):
    """Projected walks of every scheme tell no more than a set of bounded diameter allows."""
    draw = draws("projected iterates")
    cells = 160
    edges = np.linspace(0, 1, cells + 1)
    places = np.concatenate([[0.0], (edges[1:] + edges[:-1]) / 2, [1.0]])
    for number in cases(12):
        share, ratio = log_uniform(draw, 0.05, 1), log_uniform(draw, 0.4, 2)
        noise, batches = ratio * share, (1, draw.randint(2, 4), draw.randint(2, 4))[number % 3]
        steps = draw.randint(1, 40) * (batches if number % 3 == 1 else 1)

        def moved(shift: float, noise: float = noise) -> Array:
            below = ndtr((edges - (places + shift)[:, None]) / noise)
            return np.hstack([below[:, :1], np.diff(below, axis=1), 1 - below[:, -1:]])

        still = moved(0.0)
        start = np.eye(cells + 2)[draw.choice([0, cells // 2, cells + 1])]
        laws = []
        for sign in (1, -1):
            push, law = moved(sign * share / 2), start
            for t in range(steps):
                if number % 3 == 2:
                    law = law @ (push / batches + still * (1 - 1 / batches))
                else:
                    law = law @ (push if t % batches == 0 else still)
            laws.append(law)
        known = {"sigma": noise, "sensitivity": share, "diameter": 1, "step_size": 1}
        last = (
            ny.NoisyGradientDescent(1, steps, **known)
            if number % 3 == 0
            else ny.NoisyCyclicGradientDescent(batches, 1, steps // batches, **known)
            if number % 3 == 1
            else ny.NoisyStochasticGradientDescent(batches, 1, steps, **known)
        )
        f = last.tradeoff()
        for e in (0.0, draw.uniform(0, 3)):
            t = math.exp(e)
            p, q = laws
            attack = max(float(np.maximum(a - t * b, 0).sum()) for a, b in ((p, q), (q, p)))
            tally.holds(f.delta(e), attack - 1e-12, math.inf, last)
