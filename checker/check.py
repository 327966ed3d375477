"""Check the numbers of a receipt with interval arithmetic. Nothing of Neyman is imported.

    python check.py release/receipt.json                  # or the receipt's folder
    python check.py claims.txt                            # lines: mechanism; epsilon; delta
    echo "Gaussian(sigma=1).subsample(rate=1/100) * 1000; 1.83; 1e-5" | python check.py -

Needs Python 3.11 and python-flint, whose balls (midpoint and radius) enclose every rounding error.
For each stated number the program prints *proved*, *refuted*, or *not covered*, and its own ball.
It judges whether the numbers follow from the mechanisms that a receipt lists. It does not judge
whether the mechanisms describe the program that ran, nor whether they follow from the plan.

THE MATHEMATICS

1. Questions. A mechanism and two neighbors give a pair (P, Q). L = log dP/dQ, under P. D(e) = E(1 -
   exp(e - L))_+ is delta at epsilon e, here for any real e, and 0 <= D <= 1. As a function of t =
   exp(e), D is convex and falls. The power at level a is the least value of F(t) = D(log t) + t a
   over t > 0. So every t gives an upper bound. F is convex: if t0 < t1 < u < t2 < t3 and F(u) is
   at most F(t1) and F(t2), its least value is between t1 and t2. There F is above the chord from t0
   to t1, prolonged, and above that from t2 to t3, and so its least value is at least that where
   they meet. Independent releases add their L: K(z) = log E exp(zL) adds. The order (Q, P) has E_Q
   exp(z log dQ/dP) = E_P exp(-(z + 1) L). The worst of both orders, and of all listed shifts,
   counts. Total variation is D(0). One number mu of GDP needs Phi(Phi^-1(a) + mu) >= power(a) at
   every a, which can refute it.

2. Pairs. Shift s, sums over what the data fix in advance. Smaller shifts of log-concave noise are
   dominated by larger ones, as the likelihood ratio is monotone.
   Gaussian, m = s/sigma: E exp(zL) = exp(m^2 z(z+1)/2).
   Laplace, r = s/b: L = r - 2x/b for a density exp(-x/b)/2b between the centers, and +-r beyond:
   (exp(zr) (1 + 1/w) + exp(-(z+1)r) (1 - 1/w))/2, w = 2z + 1.
   Randomized response, a = 1/(exp(r) + k - 1): L = r, -r, or 0 has P-mass exp(r) a, a, and the
   rest.
   In a fixed-size sample of share p the pair is f_p = p f + (1-p) Id and its inverse, with the
   convex hull of both [Dong, Roth and Su 2022, 4.2]: the slopes -exp(r), -1 become -A, -1 with A =
   1 - p + p exp(r), the corner stays at level a: the same with log A for r, a unchanged.
   Discrete Laplace, u = 1/b, integer shift d: L = d u with mass 1/(1+exp(-u)), -d u with mass
   exp(-du)/(1+exp(-u)), (d - 2x)u with (1-exp(-u))/(1+exp(-u)) exp(-xu) for x = 1 ... d-1.
   Discrete Gaussian: L = (s^2 - 2sx)/(2 v), v = sigma^2. With Poisson's summation, E exp(zL) =
   sum_k exp(s^2 z(z+1)/2v - 2 pi^2 v k^2 + 2 pi i k s z) / sum_k exp(-2 pi^2 v k^2). At z = c + iy
   a term has the size exp(s^2 (c^2+c)/2v - (ys/sigma + 2 pi sigma k)^2/2).
   Poisson sample of a Gaussian, R(x) = 1 - q + q exp(mx - m^2/2), x ~ N(0,1): the order (mixture,
   Q) has E R^(z+1), and (Q, mixture) has E R^-z.
   One Poisson sample of any other pair: D(e) = q D'(log(1 + (t-1)/q)), and in the other order (1 -
   t(1-q)) D'(log(t q / (1 - t(1-q)))) of the reversed pair; 1 - t, or 0, where no log exists.

3. Inversion. int_0^oo (1 - exp(-x)) exp(-zx) dx = 1/(z(z+1)) for Re z > 0, so D(e) = (1/2 pi i)
   int_{Re z = c} exp(K(z) - ze)/(z(z+1)) dz for any c > 0.
   Step: the trapezoid sum with step h is sum_n exp(2 pi n c/h) D(e + 2 pi n/h) (Poisson). All terms
   are >= 0. Those with n < 0 are at most 1/(exp(2 pi c/h) - 1), as D <= 1. As (1 - exp(-x))_+ <=
   kappa(g) exp(gx), kappa(g) = g^g/(1+g)^(1+g), those with n > 0 are at most kappa(g) exp(K(g) -
   ge) / (exp(2 pi (g-c)/h) - 1), for every g > c.
   End: |1/(z(z+1))| <= 1/y^2, so nodes beyond Y add at most r exp(-ce) (1/Y + h/Y^2)/pi if r bounds
   |E exp(zL)| from Y on. A Gaussian has exp(m^2 (c^2+c-y^2)/2). A discrete Gaussian repeats at the
   multiples of p = 2 pi v/s: farther than Y from all of them r is below C (exp(-(Ys/sigma)^2/2) +
   eta), C = exp(s^2 (c^2+c)/2v), eta = 2 sum_{j>=1} exp(-(2 pi sigma (j-1/2))^2/2); the windows
   around kp, k >= 1, have at most 2Y/h + 1 nodes each, with 1/y^2 <= 4/(kp)^2, if Y <= p/2.
   Without decay: add a Gaussian release of m^2 = w. D rises, by E B(L-e), with B(x) =
   E(1-exp(-x-G))_+ - (1-exp(-x))_+, G ~ N(w/2, w). For x >= 0, t = x/sqrt w, B = exp(-x/2 - t^2/2 -
   w/8) (M(t - sqrt w/2) - M(t + sqrt w/2))/sqrt(2 pi), M Mills' ratio, convex and falling: so B <=
   B(0) exp(-x/2 - x^2/2w), B(0) = erf(sqrt(w/8)); x < 0 is the mirror image. That bump has the
   transform B(0) sqrt(2 pi w) exp(w/8) exp(w z(z+1)/2): one more sum over the same nodes, whose
   aliases are >= 0, bounds the rise.

4. Lattices. If all L are at o + js, j whole, then on x = o + js, D(x) = (s/2 pi) int exp(K(z) -
   z(x+s)) (1-exp(-s)) / ((1-exp(-sz)) (1-exp(-s(z+1)))) over one period |Im z| <= pi/s. N even
   nodes around the period have h = 2 pi/(sN), no end, and the same aliases. Between two places D is
   linear in exp(e).

5. E R^w by a trapezoid sum in x with step h: R has no zero for |Im x| < pi/m. On Im x = b, |R| <=
   R(Re x), |R| >= R(Re x) cos(mb/2), and arg R is in [0, mb]. So it errs by at most 2 E R^u
   exp(b^2/2 + |Im w| m b) cos(mb/2)^min(u,0) / (exp(2 pi b/h) - 1), u = Re w. Outside [-T, T'] :
   for u >= 0, R^u <= 1 for x <= m/2, else exp(u(mx - m^2/2)); for u < 0, R^u <= (1-q)^u.
   Decay: moved to Im x = b, |E R^(u+iy)| <= int phi exp(b^2/2) |R(x+ib)|^u exp(-y arg R(x+ib)) dx,
   which falls in y, so one value at Y covers all y >= Y. (Conjugation serves Im w < 0.) This
   integrand is analytic, too: moved by b' more, the factor exp(-y (arg R(b+b') + arg R(b-b'))/2) is
   at most 1, as arg R rises with the height. So the sum errs by at most 2 E R^u exp(b^2/2 + b'^2/2)
   cos(m(b+b')/2)^min(u,0) / (exp(2 pi b'/h) - 1), m(b+b') < pi.

Every number is computed on two lines with other tilts c and other steps h. Both balls must meet:
   two that do not would show a forgotten alias or end, and stop the program.
"""

from __future__ import annotations

import ast
import json
import math
import re
import sys
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property, partial
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Any

from flint import acb, acb_mat, acb_poly, arb, ctx, fmpq

ctx.prec = 160
NODES = 1 << 15  # most places of a period, or nodes of an inner integral and of a line that ends
SPARSE = 1 << 20  # most nodes of a line of discrete Gaussians, nearly all of which vanish
TINY = 90.0  # the logarithm of a remainder that is small enough, beside the whole
PI = arb.pi()


class NotCoveredError(Exception):
    """Say why this program does not judge a number."""


def num(x: Any) -> arb:
    """Return a rational or a float."""
    return arb(fmpq(*Fraction(x).as_integer_ratio()))


def ball(low: arb, high: arb) -> arb:
    """Return the interval from the least number of a ball to the largest of another."""
    return low.lower().union(high.upper())


def rough(x: arb) -> float:
    """Return a logarithm for choices that prove nothing."""
    return float(x.mid().log().mid()) if x.mid() > 0 else -math.inf


def tail(step: arb, start: float) -> arb:
    """Bound the sum of exp(-(step (start + j))^2 / 2) over j = 0, 1, ...; start > 0."""
    return (-((step * start) ** 2) / 2).exp() / (1 - (-(step**2) * start).exp())


class Part:
    """Give M(z) = E exp(zL) of one release, and a bound on |M| at Re z = c from a height on."""

    most: Any = None  # the largest loss, where there is one
    lattice: Any = None  # unit, offset, and spacing of the losses, where they have them

    def at(self, z: acb) -> acb:
        raise NotCoveredError("a sample of such noise beside other parts")

    def far(self, c: arb, y: arb) -> arb:
        return self.at(acb(c)).real

    def along(self, c: arb, h: arb, nodes: list[int]) -> list[acb]:
        return [self.at(acb(c, h * j)) for j in nodes]


@dataclass(frozen=True)
class Gaussian(Part):
    square: Fraction

    def at(self, z: acb) -> acb:
        return (num(self.square) / 2 * z * (z + 1)).exp()

    def far(self, c: arb, y: arb) -> arb:
        return (num(self.square) / 2 * (c * c + c - y * y)).exp()


@dataclass(frozen=True)
class Laplace(Part):
    ratio: Fraction

    @property
    def most(self) -> arb:
        return num(self.ratio)

    def at(self, z: acb) -> acb:
        w, r = 2 * z + 1, self.most
        return ((z * r).exp() * (1 + 1 / w) + (-(z + 1) * r).exp() * (1 - 1 / w)) / 2


@dataclass(frozen=True)
class Response(Part):
    epsilon: Fraction
    categories: int
    share: Fraction = Fraction(1)

    @cached_property
    def most(self) -> arb:
        r = num(self.epsilon)
        return r if self.share == 1 else (num(self.share) * r.expm1()).log1p()

    @property
    def lattice(self) -> Any:
        if self.share == 1:
            return None, Fraction(0), self.epsilon
        return (self.epsilon, self.share), Fraction(0), Fraction(1)

    def at(self, z: acb) -> acb:
        a, r = 1 / (num(self.epsilon).exp() + self.categories - 1), self.most
        return 1 + a * (r.exp() * ((z * r).exp() - 1) + (-z * r).exp() - 1)


@dataclass(frozen=True)
class DiscreteLaplace(Part):
    scale: Fraction
    shift: int

    @property
    def most(self) -> arb:
        return num(self.shift / self.scale)

    @property
    def lattice(self) -> Any:
        return None, self.shift / self.scale, 2 / self.scale

    def at(self, z: acb) -> acb:
        u, d, s, w = num(1 / self.scale), self.shift, self.most, (2 * z + 1) / num(self.scale)
        ends, inner = (z * s).exp() + (-(z + 1) * s).exp(), acb(0)
        if d > 1:
            inner = (z * s - w).exp() * (1 - (-w * (d - 1)).exp()) / (1 - (-w).exp())
        return (ends + (1 - (-u).exp()) * inner) / (1 + (-u).exp())


@dataclass(frozen=True)
class DiscreteGaussian(Part):
    variance: Fraction
    shift: int

    @property
    def lattice(self) -> Any:
        return None, self.shift**2 / (2 * self.variance), self.shift / self.variance

    @cached_property
    def frame(self) -> tuple[Any, ...]:
        """Return s^2/2v, 2 pi sigma, 2 pi v/s, eta, the last k, the rest, and the denominator."""
        v, s = num(self.variance), self.shift
        spacing = 2 * PI * v.sqrt()
        last = math.floor(math.sqrt(2 * TINY + 60) / float(spacing) + 0.5)
        rest = 2 * tail(spacing, last + 0.49)
        norm = sum(((-((spacing * k) ** 2) / 2).exp() for k in range(-last, last + 1)), arb(0))
        norm += ball(arb(0), rest)
        return (
            num(s * s) / (2 * v),
            spacing,
            2 * PI * v / s,
            2 * tail(spacing, 0.5),
            last,
            rest,
            norm,
        )

    def at(self, z: acb) -> acb:
        square, spacing, period, _, last, rest, norm = self.frame
        if abs(z.imag / period) > 1e12:
            raise NotCoveredError("a height at which floats find no period")
        near, start = -round(float((z.imag / period).mid())), square * z * (z + 1)
        step, base = spacing**2 / 2, acb(0, 2 * PI * self.shift) * z
        ks = range(near - last, near + last + 1)
        total = sum(((start - step * k * k + base * k).exp() for k in ks), acb(0))
        slack = (rest * (square * z.real * (z.real + 1)).exp()).upper()
        return (total + acb(arb(0, slack), arb(0, slack))) / norm

    def size(self, c: arb) -> arb:
        """Return C."""
        return (self.frame[0] * c * (c + 1)).exp()


@dataclass(frozen=True)
class Sampled(Part):
    square: Fraction
    rate: Fraction
    added: bool = False  # the order (Q, mixture)

    @property
    def most(self) -> Any:
        return -(1 - num(self.rate)).log() if self.added else None

    @cached_property
    def m(self) -> arb:
        return num(self.square).sqrt()

    def power(self, c: arb) -> arb:
        return -c if self.added else c + 1

    def places(self, u: arb, y: float, base: float) -> tuple[Any, ...]:
        """Return the places, their step, R on them, and the two errors of a sum beside E R^u."""
        m, power, low_rate = float(self.m), float(u.mid()), -math.log1p(-float(self.rate))
        for k in range(20):  # a step and a height at which the error is small
            step = Fraction(1, 2**k)
            b = min((1.5 if power < 0 else 2.6) / m - base, 2 * math.pi / step - y * m)
            bend = min(power, 0.0) * math.log(max(math.cos(m * (b + base) / 2), 1e-9))
            if (
                b > 0
                and (b * b + base**2) / 2 + y * m * b + bend < 2 * math.pi * b / step - TINY - 20
            ):
                break
        more = max(power * (power - 1) * m * m, 0.0) if power >= 0 else -2 * power * low_rate
        reach = math.sqrt(2 * TINY + 80 + more + base**2 + 2 * bend)
        first, last = (math.ceil(x / step) for x in (reach, reach + max(m / 2, power * m)))
        if k == 19 or first + last > NODES:
            raise NotCoveredError("an inner integral that needs too many points")
        left, right = num(first * step), num(last * step)
        out = (1 + num(step)) * (-(left**2) / 2).exp()
        if power < 0:
            out *= 2 * ((1 - num(self.rate)).log() * u).exp()
        elif right > self.m / 2 and right - u * self.m > 1:
            square = num(self.square)
            right -= u * self.m
            out += (1 + num(step)) * (u * (u - 1) * square / 2 - right**2 / 2).exp()
        else:
            raise NotCoveredError("an inner integral whose end is not known")
        b, base = num(b), num(base)
        bend = ((self.m * (b + base) / 2).cos().log() * u).exp() if power < 0 else arb(1)
        error = 2 * ((b * b + base**2) / 2 + num(y) * self.m * b).exp() * bend
        error /= (2 * PI * b / num(step)).exp() - 1
        xs = [num(step * j) for j in range(-first, last + 1)]
        turn = [acb(self.m * x - num(self.square) / 2, self.m * base).exp() for x in xs]
        logs = [(1 - num(self.rate) + num(self.rate) * r).log() for r in turn]
        return xs, num(step) / (2 * PI).sqrt(), logs, error, out * (base**2 / 2).exp() * bend

    def along(self, c: arb, h: arb, nodes: list[int]) -> list[acb]:
        u, h = self.power(c), -h if self.added else h
        top = float((abs(h) * max(nodes)).upper()) * (1 + 1e-9)
        xs, norm, logs, error, out = self.places(u, top, 0.0)
        if len(xs) * max(nodes) > 2**23:
            raise NotCoveredError("inner integrals that need too many points")
        sizes = [norm * (u * r.real - x * x / 2).exp() for x, r in zip(xs, logs, strict=True)]
        # exp(i (a + j) h r) = exp(i a h r) exp(i j h r): few exponentials, a product of matrices
        block = math.isqrt(max(nodes)) + 1
        turns = acb_mat([[(acb(0, h * j) * r).exp() for r in logs] for j in range(block)])
        starts = range(0, max(nodes) + 1, block)
        rows = zip(sizes, logs, strict=True)
        table = turns * acb_mat([[w * (acb(0, h * a) * r).exp() for a in starts] for w, r in rows])
        mean = (sum(sizes, arb(0)) + out) / (1 - error)  # at least E R^u
        slack = (error * mean + out).upper()
        if not (error < 1 and slack.is_finite()):
            raise NotCoveredError("an inner integral")
        blur = acb(arb(0, slack), arb(0, slack))
        return [table[j % block, j // block] + blur for j in nodes]

    def at(self, z: acb) -> acb:
        return self.along(z.real, arb(0), [0])[0]  # only on the real line

    def far(self, c: arb, y: arb) -> arb:
        u, mean = self.power(c), self.at(acb(c)).real
        least = mean.upper()
        for turn in (0.1, 0.3, 0.6, 1.0):
            base = Fraction(turn / float(self.m))
            xs, norm, logs, error, out = self.places(u, 0.0, float(base))
            terms = zip(xs, logs, strict=True)
            total = sum(((u * r.real - y * r.imag - x * x / 2).exp() for x, r in terms), arb(0))
            found = total * norm * (num(base) ** 2 / 2).exp() + error * mean + out
            least = min(least, found.upper())
        return least


@dataclass(frozen=True)
class OneSample(Part):
    parts: frozenset[Any]
    rate: Fraction
    added: bool = False


class Law:
    """Give M(z) of a sum of independent losses. ``parts`` has their numbers."""

    def __init__(self, parts: dict[Any, int]) -> None:
        self.parts, self.known = parts, dict[float, arb]()
        bounded = all(part.most is not None for part in parts)
        self.most = sum((part.most * n for part, n in parts.items()), arb(0)) if bounded else None

    def times(self, bound: Any) -> arb:
        return math.prod((bound(part) ** n for part, n in self.parts.items()), start=arb(1))

    def at(self, c: arb) -> arb:
        if (key := float(c)) not in self.known:
            self.known[key] = self.times(lambda part: part.at(acb(c)).real)
        return self.known[key]

    def chernoff(self, c: arb) -> arb:
        """Return kappa(c) M(c)."""
        return (c * c.log() - (1 + c) * (1 + c).log()).exp() * self.at(c)

    def aliases(self, c: arb, period: arb, e: arb) -> arb:
        low = 1 / ((period * c).exp() - 1)
        if self.most is not None and e + period >= self.most:  # D is 0 from there on
            return low
        tilts = (c * num(t) for t in (1.2, 1.4, 2.0, 2.8))
        above = (self.chernoff(g) * (-g * e).exp() / ((period * (g - c)).exp() - 1) for g in tilts)
        return low + min(x.upper() for x in above)

    def beyond(self, c: arb, h: arb, y: arb) -> arb:
        """Bound the nodes from y on, without the factor exp(-ce)."""
        plain = (1 / y + h / y**2) / PI
        far = {part: part.far(c, y) ** n for part, n in self.parts.items()}
        best = math.prod(far.values(), start=plain)
        for part, n in self.parts.items():
            if isinstance(part, DiscreteGaussian):
                _, spacing, period, eta, *_ = part.frame
                outside = (-((spacing * y / period) ** 2) / 2).exp() + eta
                near = (1 + eta) ** n * (2 * y + h) * 4 * PI / (6 * period**2)
                rest = math.prod((x for p, x in far.items() if p != part), start=part.size(c) ** n)
                if y <= period / 2:
                    best = min(best.upper(), (rest * (outside**n * plain + near)).upper())
        return best


class Sums:
    """Evaluate the sum of values times exp(-ze) over the nodes z = c + ihj, in blocks."""

    def __init__(self, c: arb, h: arb, values: dict[int, acb]) -> None:
        self.c, self.h, self.blocks = c, h, dict[int, list[acb]]()
        for j, value in values.items():  # short blocks: each step of Horner's rule widens a ball
            self.blocks.setdefault(j // 64, [acb(0)] * 64)[j % 64] = value
        self.polys = {i: acb_poly(block) for i, block in self.blocks.items()}

    def at(self, e: arb) -> arb:
        turn, step = acb(0, -self.h * e).exp(), acb(0, -64 * self.h * e)
        total = sum((poly(turn) * (step * i).exp() for i, poly in self.polys.items()), acb(0))
        return total.real * (-self.c * e).exp()


class Line:
    """Compute D by the trapezoid sum over one line Re z = c."""

    def __init__(self, law: Law, c: arb, h: arb) -> None:
        self.c, self.h, aim = c, h, rough(law.at(c)) - TINY
        gates = [
            (p, n, *map(float, p.frame[1:4])) for p, n in law.parts.items() if hasattr(p, "frame")
        ]
        if any(float(h) * SPARSE * spacing > 1e13 * period for _, _, spacing, period, _ in gates):
            raise NotCoveredError("heights at which floats find no window")
        counts = [2**k for k in range(4, 16)]
        ends = {}
        for count in counts:
            ends[count] = rough(law.beyond(c, h, h * (count - 1)))
            if ends[count] < aim:
                break
        count = min(ends, key=lambda n: ends[n])
        self.rise = ends[count] > aim + TINY - 20
        if self.rise:
            count = SPARSE
        # A node that the gates show to be tiny is left out. Floats err by less than 1 in ``loss``.
        cut, kept = 2 * TINY, list[int]()
        for j in range(count):
            loss, height = 0.0, j * float(h)
            for _, n, spacing, period, eta in gates:
                x = math.remainder(height, period) / period * spacing
                loss -= n * math.log(math.exp(-min(x * x / 2, 700.0)) + eta)
                if loss > cut + 1:
                    break
            else:
                kept.append(j)
                if len(kept) == NODES // 4 and self.rise:
                    count = j + 1
                    break
        y = h * (count - 1)
        if self.rise:  # add a tiny Gaussian
            w = Fraction(math.ceil(2**90 * 2 * TINY / float(y) ** 2), 2**90)
            law = Law(law.parts | {Gaussian(w): law.parts.get(Gaussian(w), 0) + 1})
        self.law, self.end = law, law.beyond(c, h, y)
        size = law.times(lambda p: p.size(c) if hasattr(p, "frame") else p.at(acb(c)).real)
        left_out = size * (-num(cut)).exp()
        self.end += left_out * PI / (6 * h)
        values = dict.fromkeys(kept, acb(1))
        for part, n in law.parts.items():
            for j, value in zip(kept, part.along(c, h, kept), strict=True):
                values[j] *= value**n
        values[0] /= 2
        places = {j: acb(c, h * j) for j in kept}
        self.sums = Sums(c, h, {j: v / (places[j] * (places[j] + 1)) for j, v in values.items()})
        if self.rise:
            self.bump = (num(w) / 8).sqrt().erf() * (2 * PI * num(w)).sqrt() * (num(w) / 8).exp()
            self.bumps = Sums(c, h, values)
            rest = law.times(lambda part: part.far(c, y)) * (1 / (num(w) * y) + h) / PI
            self.bump_end = rest + left_out * h * count / PI

    def delta(self, e: arb) -> arb:
        size, total = (-self.c * e).exp(), self.sums.at(e) * self.h / PI
        low = total - self.end * size - self.law.aliases(self.c, 2 * PI / self.h, e)
        if self.rise:
            low -= self.bump * (self.bumps.at(e) * self.h / PI + self.bump_end * size)
        return ball(low, total + self.end * size)


class Lattice:
    """Compute D from its values at the places o + js."""

    def __init__(self, law: Law, c: arb, half: int, o: arb, s: arb) -> None:
        self.law, self.c, self.count, self.o, self.s = law, c, 2 * half, o, s
        h, values, self.known = PI / (s * half), dict[int, acb](), dict[int, arb]()
        nodes = list(range(half + 1))
        total = [acb(1)] * (half + 1)
        for part, n in law.parts.items():
            total = [a * b**n for a, b in zip(total, part.along(c, h, nodes), strict=True)]
        for j, value in enumerate(total):
            zs = acb(c, h * j) * s
            values[j] = value * (-zs).exp() * (1 - (-s).exp())
            values[j] /= (1 - (-zs).exp()) * (1 - (-zs - s).exp()) * (1 if 0 < j < half else 2)
        self.sums = Sums(c, h, values)

    def value(self, k: int) -> arb:
        if k not in self.known:
            x = self.o + self.s * k
            total = self.sums.at(x) * 2 / self.count
            self.known[k] = ball(total - self.law.aliases(self.c, self.s * self.count, x), total)
        return self.known[k]

    def corners(self, e: float) -> list[float]:
        near = round(float(((num(e) - self.o) / self.s).mid()))
        return [float((self.o + self.s * k).mid()) for k in (near - 1, near, near + 1)]

    def delta(self, e: arb) -> arb:
        near, found = math.floor(float(((e - self.o) / self.s).mid())), list[arb]()
        if abs(near) > 2**50:
            raise NotCoveredError("a place beyond the floats")
        for k in (near - 1, near, near + 1):
            x = self.o + self.s * k
            if not (x + self.s < e or x > e):
                share = (e - x).expm1() / self.s.expm1()
                found.append(self.value(k) + (self.value(k + 1) - self.value(k)) * share)
        return ball(min(x.lower() for x in found), max(x.upper() for x in found))


class Pair:
    """Answer D for one order of one pair, each time on two lines, whose balls must meet."""

    def __init__(self, parts: dict[Any, int]) -> None:
        self.sample = next((p for p in parts if isinstance(p, OneSample) and len(parts) == 1), None)
        if self.sample and parts[self.sample] == 1:
            parts = dict(self.sample.parts)
        self.law, self.engines, self.chances = Law(parts), dict[Any, Any](), dict[int, Any]()

    def chernoff(self, k: int, e: float) -> float:
        """Return the logarithm of Chernoff's bound on D, at the tilt sqrt(2)^k."""
        if k not in self.chances:
            c = num(2) ** num(Fraction(k, 2))
            self.chances[k] = rough(self.law.chernoff(c)), float(c)
        return self.chances[k][0] - self.chances[k][1] * e

    def least(self, bound: Any) -> int:
        """Return about the best k. A small tilt needs small steps, and must gain more."""
        k = 1
        while k < 120 and bound(k + 1) < bound(k) - 0.01 * abs(bound(k)):
            k += 1
        while k > -20 and bound(k - 1) < bound(k) - 5:
            k -= 1
        return k

    def above(self, size: float) -> float:
        """Return an epsilon at which log D is at most about -size."""
        k = self.least(bound := lambda k: (self.chernoff(k, 0.0) + size) / 2 ** (k / 2))
        return max(bound(k), 1e-6)

    def engine(self, e: float) -> tuple[Any, Any]:
        k = self.least(lambda k: self.chernoff(k, e))
        used = min(self.engines, key=lambda j: self.chernoff(j, e), default=k)
        if self.chernoff(used, e) < self.chernoff(k, e) + 15:
            k = used
        if k not in self.engines:
            self.engines[k] = tuple(self.build(k, second) for second in (0, 1))
        return self.engines[k]

    def build(self, k: int, second: int) -> Any:
        c = num(2) ** num(Fraction(k - 1 - second, 2))  # M may explode above the best tilt
        period = num(TINY + 120 + 25 * second) / c
        lattices = [part.lattice for part in self.law.parts]
        units = {one and one[0] for one in lattices}
        if all(lattices) and len(units) == 1:
            unit = next(iter(self.law.parts)).most if units != {None} else arb(1)
            steps = [one[2].as_integer_ratio() for one in lattices]
            s = Fraction(math.gcd(*(a for a, _ in steps)), math.lcm(*(b for _, b in steps)))
            counts = zip(lattices, self.law.parts.values(), strict=True)
            o = sum((one[1] * n for one, n in counts), Fraction(0))
            need = float(period / (unit * num(s)))
            if self.law.most is not None and self.law.most / (unit * num(s)) < NODES / 4:
                need = max(need, 2 * float(self.law.most / (unit * num(s))))
            if need < NODES:
                return Lattice(self.law, c, math.ceil(need / 2) + 1, unit * num(o), unit * num(s))
        return Line(self.law, c, 2 * PI / period)

    def corners(self, e: float) -> list[float]:
        """Return the corners of D near e, or all."""
        q, added = (float(self.sample.rate), self.sample.added) if self.sample else (1.0, False)
        t = math.exp(e)
        inside = t * q / max(1 - t * (1 - q), 1e-300) if added else 1 + (t - 1) / q
        engine = next(iter(self.engines.values()), (None,))[0]
        if isinstance(engine, Lattice) and inside > 0:
            found = engine.corners(math.log(inside))
        else:
            ratios = [float(p.ratio) for p in self.law.parts if isinstance(p, Laplace)]
            found = [sign * r for r in ratios for sign in (-1, 1)]
        ts = [math.exp(x) for x in found]  # the inverse of ``inside``
        return [math.log(t / (q + t - t * q) if added else 1 - q + q * t) for t in ts]

    def delta(self, e: arb) -> arb:
        if not self.sample:
            return self.inner(e)
        q, t = num(self.sample.rate), e.exp()
        left = 1 - t * (1 - q) if self.sample.added else q
        inside = t * q / left if self.sample.added else 1 + (t - 1) / q
        if inside > 0:
            return left * self.inner(inside.log())
        if (left if self.sample.added else inside) <= 0:
            return arb(0) if self.sample.added else 1 - t
        raise NotCoveredError("an epsilon at which a formula ends")

    def inner(self, e: arb) -> arb:
        floor, parts = arb(0).max(-e.expm1()), self.law.parts
        if not parts or (self.law.most is not None and e >= self.law.most):
            return floor
        (part, n), *more = parts.items()
        if isinstance(part, Laplace) and n == 1 and not more:
            return floor if abs(e) >= part.most else (-((e - part.most) / 2).expm1()).max(floor)
        one, two = (engine.delta(e) for engine in self.engine(float(e.mid())))
        if not one.overlaps(two):
            raise ArithmeticError(f"two computations at epsilon {e} disagree: {one} and {two}")
        return one.intersection(two).max(floor).min(arb(1))


def epsilon_of(pair, delta):
    """Return proved bounds on the least epsilon >= 0 at this delta."""
    if pair.delta(arb(0)) <= delta:
        return arb(0), arb(0)
    high = pair.above(-rough(delta))
    while pair.delta(num(high)) > delta and high < 1e9:
        high *= 2
    low = 0.0
    at_low, at_high = (rough(pair.delta(num(e))) - rough(delta) for e in (low, high))
    for _ in range(100):  # the Illinois rule
        usable = math.isfinite(at_low) and math.isfinite(at_high) and at_low > at_high
        middle = low + (high - low) * (at_low / (at_low - at_high) if usable else 0.5)
        if not low < middle < high or high - low < 1e-14 * high:
            break
        if (value := rough(pair.delta(num(middle))) - rough(delta)) > 0:
            low, at_low, at_high = middle, value, at_high / 2
        else:
            high, at_high, at_low = middle, value, at_low / 2
    for width in (max(high, 1e-3) * 2.0**-k for k in range(46, 0, -2)):
        below, above = num(max(high - width, 0.0)), num(high + width)
        if pair.delta(above) <= delta and (below == 0 or pair.delta(below) >= delta):
            return below, above
    raise NotCoveredError("the ball of epsilon is too wide")


def power_of(pair, level):
    """Return proved bounds on the power at a level: the least F found, and two chords."""

    @cache
    def total(e):
        return pair.delta(num(e)) + num(e).exp() * level

    def size(e):
        return float(total(e).upper().mid())

    wide = 1.5 * pair.above(4 - rough(level.min(1 - level)))
    step = math.copysign(wide / 16, size(-wide / 16) - size(wide / 16))
    low = -step
    while size(low + 2 * step) < size(low + step) and abs(low) < 9 * wide:
        low += step  # downhill
    low, high = sorted((low, low + 2 * step))
    golden = (math.sqrt(5) - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    while high - low > 1e-9 * wide:
        if size(left) <= size(right):
            high, right, left = right, left, right - golden * (right - low)
        else:
            low, left, right = left, right, left + golden * (high - left)
    middle = min((left, right, *pair.corners(left)), key=size)
    best, least = total(middle).upper(), level.lower()
    for width in (1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2):
        places = [middle + width * wide * j for j in (-2, -1, 0, 1, 2)]
        t0, t1, _, t2, t3 = (num(e).exp() for e in places)
        f0, f1, between, f2, f3 = map(total, places)
        first, last = (f1 - f0) / (t1 - t0), (f3 - f2) / (t3 - t2)
        best = best.min(f1.upper()).min(f2.upper())
        if first < 0 < last and between <= f1 and between <= f2:
            x = (f2 - f1 - last * (t2 - t1)) / (first - last)  # where the chords meet
            least = least.max((f1 + first * x).lower())
    return least, best.min(arb(1))


# Reading

NUMBER = re.compile(
    r"[+-]?([0-9]{1,400}(/0*[1-9][0-9]{0,400})?|[0-9]{0,400}\.[0-9]{1,400}(e[+-]?[0-9]{1,3})?|[0-9]{1,400}e[+-]?[0-9]{1,3})",
    re.I,
)
LARGEST = 10**6  # of a ratio of shift to noise, as Neyman has it
FIELDS = {"Gaussian": "sigma sensitivity", "RandomizedResponse": "epsilon categories"}
FIELDS |= dict.fromkeys(("Laplace", "DiscreteLaplace"), "scale sensitivity")
FIELDS |= {"DiscreteGaussian": "sigma sensitivity", "DPSGD": "n batch sigma epochs sampling"}


def exact(given, least=0, most=10**400):
    """Return a number as it is written, within [least, most]."""
    if isinstance(given, str) and NUMBER.fullmatch(given):
        given = Fraction(given)
    if type(given) not in (int, Fraction) or not least <= given <= most:
        raise ValueError(f"{str(given)[:60]!r} is not a number that may stand here")
    return Fraction(given)


def whole(given, least=0, most=10**18):
    if exact(given, least, most).denominator != 1:
        raise ValueError(f"{str(given)[:60]!r} is not a whole number")
    return int(exact(given))


def ratio(above, below, most):
    value = exact(above) / exact(below, Fraction(1, 10**300))
    return exact(value, min(value, Fraction(1, 10**150)), most) if value else value


def added_up(choices):
    """Return the sum of each choice of alternatives, at most 64."""
    sums = []
    for chosen in choices:
        sums.append({})
        for part, n in (item for parts in chosen for item in parts.items()):
            sums[-1][part] = sums[-1].get(part, 0) + n
        if len(sums) > 64:
            raise NotCoveredError("too many combinations of shifts")
    return sums


def repeated(m, count):
    choices, n = alternatives(m), whole(count)
    if len(choices) == 1:
        return [{part: k * n for part, k in choices[0].items()}] if n else [{}]
    if n > 64:
        raise NotCoveredError("too many combinations of shifts")
    return added_up(combinations_with_replacement(choices, n))


def alternatives(m):
    """Return the numbers of each part, {part: count}, for each shift that a mechanism lists."""
    s = m.get("sensitivity", 1)
    match m:
        case {"type": "Composed", "parts": parts}:
            return added_up(product(*(repeated(one["mechanism"], one["count"]) for one in parts)))
        case {"type": "Alternatives", "mechanisms": several}:
            return [one for inner in several for one in alternatives(inner)]
        case {"type": "Gaussian", "sigma": sigma}:
            part, shift = Gaussian(ratio(s, sigma, 10**150) ** 2), exact(s)
        case {"type": "Laplace", "scale": b}:
            part, shift = Laplace(ratio(s, b, LARGEST)), exact(s)
        case {"type": "DiscreteLaplace", "scale": b}:
            part, shift = DiscreteLaplace(exact(b), whole(s, 0, 10**5)), ratio(s, b, LARGEST)
        case {"type": "RandomizedResponse" | "LocalRandomizer", "epsilon": shift}:
            part = Response(exact(shift, 0, LARGEST), whole(m.get("categories", 2), 2))
        case {"type": "DiscreteGaussian"} if m.get("squared_norm") is None:
            v = exact(m["sigma_squared"]) if "sigma_squared" in m else exact(m["sigma"]) ** 2
            v, vectors = exact(v, Fraction(1, 10**4), 10**30), s if isinstance(s, list) else [[s]]
            vectors = [[abs(whole(x, -(10**12), 10**12)) for x in vector] for vector in vectors]
            parts = [[{DiscreteGaussian(v, x): 1} for x in vector if x] for vector in vectors]
            return added_up(parts) or [{}]
        case {"type": "Subsampled", "rate": rate, "mechanism": inner}:
            return sampled(m, exact(rate, 0, 1), *alternatives(inner))
        case {"type": "FixedSize", "mechanism": inner, "size": size, "population": population}:
            return fixed(ratio(size, population, 1), alternatives(inner))
        case {"type": "ShuffledBatches", "mechanism": inner}:
            return alternatives(inner)
        case {"type": "DPSGD", "n": n, "batch": batch, "sigma": sigma, "epochs": epochs}:
            sampling, step = m.get("sampling", "poisson"), {"type": "Gaussian", "sigma": sigma}
            one_each = m.get("records_per_user", 1) == 1 or m.get("user_sampling") == "users"
            if m.get("strategy") is not None or not one_each:
                raise NotCoveredError("this kind of training")
            if sampling == "poisson":
                step = {"type": "Subsampled", "mechanism": step, "rate": ratio(batch, n, 1)}
                return repeated(step, math.ceil(exact(epochs) * exact(n) / exact(batch)))
            if sampling in ("shuffled", "cyclic"):
                return repeated(step, epochs)
            raise NotCoveredError(f"training on batches that are {str(sampling)[:20]}")
        case {"type": kind}:
            raise NotCoveredError(f"{str(kind)[:40]} as described here")
        case _:
            raise ValueError("a mechanism without a type")
    return [{part: 1} if shift else {}]


def sampled(m, rate, parts, *more):
    if more or m.get("neighboring", "add-remove") != "add-remove" or m.get("records", 1) != 1:
        raise NotCoveredError("this kind of Poisson sample")
    if not parts or rate in (0, 1):
        return [parts if rate else {}]
    if any(isinstance(part, OneSample | Sampled | Response) for part in parts):
        raise NotCoveredError("a sample of such parts")
    if all(isinstance(part, Gaussian) for part in parts):
        return [{Sampled(sum(part.square * n for part, n in parts.items()), rate): 1}]
    return [{OneSample(frozenset(parts.items()), rate): 1}]


def fixed(share, choices):
    match [list(parts.items()) for parts in choices]:
        case [[(Response() as part, 1)]] if 0 < share < 1 and part.share == 1:
            return [{replace(part, share=share): 1}]
        case _ if share in (0, 1):
            return choices if share else [{}]
    raise NotCoveredError("a sample of fixed size of such parts")


def expression(text):
    """Return the mechanism of a text as a receipt would describe it."""

    def value(node):
        match node:
            case ast.Constant(value=str() as written):
                return written
            case ast.Constant():
                return exact(ast.get_source_segment(text, node).replace("_", ""))
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return [value(item) for item in items]
            case ast.BinOp(left=left, op=op, right=right):
                match value(left), op, value(right):
                    case dict() as a, ast.Add(), dict() as b:
                        return {
                            "type": "Composed",
                            "parts": [{"mechanism": x, "count": 1} for x in (a, b)],
                        }
                    case (dict() as a, ast.Mult(), Fraction() as n) | (
                        Fraction() as n,
                        ast.Mult(),
                        dict() as a,
                    ):
                        return {"type": "Composed", "parts": [{"mechanism": a, "count": n}]}
                    case Fraction() as a, ast.Div(), Fraction() as b if b:
                        return exact(a / b)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=named) if name in FIELDS:
                given = dict(zip(FIELDS[name].split(), map(value, args), strict=False))
                return {"type": name} | given | {str(k.arg): value(k.value) for k in named}
            case ast.Call(func=ast.Attribute(value=inner, attr="subsample"), keywords=named):
                given = {str(k.arg): value(k.value) for k in named} | {"mechanism": value(inner)}
                return {"type": "Subsampled" if "rate" in given else "FixedSize"} | given
        raise NotCoveredError(f"the text {ast.get_source_segment(text, node)!r:.60}")

    return value(ast.parse(text.strip(), mode="eval").body)


# The verdicts


class Judge:
    """Judge claims about one mechanism."""

    def __init__(self, read):
        self.verdicts, self.powers, self.pairs, self.why = [], [], [], None
        try:
            self.choices = read()
            for choice in self.choices:
                parts = choice
                if [*parts.values()] == [1] and isinstance(one := next(iter(parts)), Sampled):
                    parts = {OneSample(frozenset({(Gaussian(one.square), 1)}), one.rate): 1}
                orders = [parts]
                if any(hasattr(part, "added") for part in parts):
                    orders.append(
                        {
                            replace(p, added=True) if hasattr(p, "added") else p: n
                            for p, n in parts.items()
                        }
                    )
                self.pairs += map(Pair, orders)
        except NotCoveredError as error:
            self.why = error

    def add(self, claim, question, *given):
        """Record the verdict on an upper bound, which is in an interval with its lower bound."""
        try:
            if self.why:
                raise self.why
            verdict, own = question(*given)
        except NotCoveredError as error:
            verdict, own = "not covered", error
        self.verdicts.append((verdict, claim, own.str(20) if isinstance(own, arb) else str(own)))

    def compare(self, own, low, high):
        """Judge an upper bound: ``own`` has proved bounds. The lower bound must be possible."""
        shown = ball(*own) if isinstance(own[0], arb) else own[0]
        if own[0] > high or own[1] < low:
            return "refuted", shown
        return ("proved" if own[1] <= high else "not covered"), shown

    def largest(self, question, *given):
        found = [question(pair, *given) for pair in self.pairs]
        return max(low for low, _ in found), max(high for _, high in found)

    def delta(self, e, low, high):
        def bounds(pair):
            own = pair.delta(num(e))
            return own.lower(), own.upper()

        return self.compare(self.largest(bounds), num(low), num(high))

    def epsilon(self, d, low, high):
        if high == math.inf:
            return "proved", "any"
        verdict, own = self.delta(high, 0, d)
        if verdict != "refuted" and 0 < d < 1:
            least, most = self.largest(epsilon_of, num(d))
            own = ball(least, most)
            verdict = "refuted" if most < num(low) else verdict
        return verdict, own

    def power(self, a, low, high):
        if not 0 < a < 1:
            raise NotCoveredError("a level of 0 or 1")
        own = self.largest(power_of, num(a))
        self.powers.append((num(a), own[0]))
        return self.compare(own, num(low), num(high))

    def squares(self, kinds):
        """Return the largest sum of squared shifts over noise."""
        if any(not isinstance(part, kinds) for parts in self.choices for part in parts):
            raise NotCoveredError("only normal noise has this number in closed form")
        return max(
            sum(
                n * (p.square if isinstance(p, Gaussian) else p.shift**2 / p.variance)
                for p, n in parts.items()
            )
            for parts in self.choices
        )

    def rho(self, low, high):
        total = self.squares((Gaussian, DiscreteGaussian)) / Fraction(2)
        return self.compare((total, total), low, high)

    def mu(self, low, high):
        if high == math.inf:
            return "proved", "any"
        for level, power in self.powers:
            z = (2 * level).erfcinv() - num(high) / num(2).sqrt()
            if z.erfc() / 2 < power:
                return "refuted", f"power {power.str(20)} at level {level.str(5)}"
        total = num(self.squares(Gaussian)).sqrt()
        return self.compare((total.lower(), total.upper()), num(low), num(high))


def end(x):
    """Return an end of an interval as the float that was written."""
    return (
        math.inf
        if x in ("inf", None)
        else -math.inf
        if x == "-inf"
        else float(exact(x, -(10**300), 10**300))
    )


def judge_receipt(content):
    """Return the verdicts on a receipt."""
    mechanism = content.get("mechanism") or content.get("terms", {}).get("mechanism")
    parts = [one for one in content.get("mechanisms", ()) if one["mechanism"]]
    judge = Judge(lambda: alternatives(mechanism or {"type": "Composed", "parts": parts}))
    said = content["guarantee"]
    for kind, points, at in (
        ("epsilon", said["epsilon"], "delta"),
        ("power", (*said["power"], *said.get("curve", ())), "level"),
    ):
        for x, low, high in (map(end, (p[at], p["lower"], p["upper"])) for p in points):
            judge.add(f"{kind} at {at} {x:g} <= {high!r}", getattr(judge, kind), x, low, high)
    for kind in ("rho", "mu", "total_variation"):
        if kind in said:
            low, high = end(said[kind]["lower"]), end(said[kind]["upper"])
            given = (judge.delta, 0) if kind == "total_variation" else (getattr(judge, kind),)
            judge.add(f"{kind} <= {high!r}", *given, low, high)
    budget = content.get("budget") or {}
    numbers = {name: exact(x) for name, x in budget.items() if name != "kind"}
    match budget.get("kind"), numbers:
        case "zcdp" | "gdp", {"rho": most} | {"mu": most}:
            judge.add(f"budget {budget}", judge.rho if "rho" in numbers else judge.mu, 0, most)
        case "approximate", {"epsilon": e, "delta": d}:
            judge.add(f"budget {budget}", judge.delta, e, 0, d)
        case "at_most", {"power": most, "level": a}:
            judge.add(f"budget {budget}", judge.power, a, 0, most)
    charge = content.get("ledger", {})
    if charge.get("currency") == "zcdp" and charge.get("charged_delta", "0") == "0":
        judge.add(f"charge of rho {charge['charged']}", judge.rho, 0, exact(charge["charged"]))
    names = ("posterior", "scenarios", "zcdp_route")
    return judge.verdicts + [("not covered", name, "") for name in names if said.get(name)]


def judged(text):
    """Return the verdicts on a receipt's text, or on lines."""
    if text.lstrip().startswith("{"):
        whole_number = {"parse_int": lambda x: exact(x, -(10**400))}
        content = json.loads(
            text, parse_float=whole_number["parse_int"], parse_constant=exact, **whole_number
        )
        return judge_receipt(content)
    verdicts = []
    for line in filter(None, (line.partition("#")[0].strip() for line in text.splitlines())):
        mechanism, e, d = (x.strip() for x in line.split(";"))
        judge = Judge(partial(lambda text: alternatives(expression(text)), mechanism))
        judge.add(line, judge.delta, exact(e, -LARGEST, LARGEST), 0, exact(d))
        verdicts += judge.verdicts
    return verdicts


def main(path="-", *more):
    """Print a line per number. Return 0: proved, none refuted; 1: not so; 2: unreadable."""
    try:
        file = Path(path) / "receipt.json" if Path(path).is_dir() else Path(path)
        verdicts = judged(sys.stdin.read() if path == "-" else file.read_text("utf-8"))
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        print(f"{path}: cannot be judged: {why}")
        return 2
    for verdict, claim, own in verdicts:
        print(f"{verdict:<12} {claim}" + (f"   own: {own}" if own else ""))
    kinds = [verdict for verdict, _, _ in verdicts]
    print(", ".join(f"{kinds.count(kind)} {kind}" for kind in ("proved", "refuted", "not covered")))
    return 0 if "proved" in kinds and "refuted" not in kinds else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
