"""Piecewise-linear curves by their corners, in fractions: no code of the library's."""

from bisect import bisect_right
from fractions import Fraction as F
from itertools import pairwise

from hypothesis import strategies as st

Curve = list[tuple[F, F]]  # (type I error, type II error), from level 0 to (1, 0)


def value(f, x):
    i = min(bisect_right([a for a, _ in f], x), len(f) - 1)
    (x0, y0), (x1, y1) = f[i - 1], f[i]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def inverse(f, y):
    """inf { t : f(t) <= y }, with its jumps: f(0) < 1, and f = 0 before 1."""
    if f[0][1] <= y:
        return F(0)
    for (x0, y0), (x1, y1) in pairwise(f):
        if y1 <= y:
            return x0 + (x1 - x0) * (y0 - y) / (y0 - y1)
    raise AssertionError


def places(f):
    """Where f or its inverse has corners, and f meets its inverse between them."""
    results = sorted({x for x, _ in f} | {y for _, y in f} | {F(0), F(1)})
    more = []
    for a, b in pairwise(results):
        d0 = value(f, a) - inverse(f, a)
        d1 = value(f, b) - inverse(f, b)
        if d0 * d1 < 0:
            more.append(a + (b - a) * d0 / (d0 - d1))
    return sorted({*results, *more})


def below(points):
    results: Curve = []
    for x, y in sorted(points):
        while len(results) > 1 and (results[-1][1] - results[-2][1]) * (x - results[-2][0]) >= (
            y - results[-2][1]
        ) * (results[-1][0] - results[-2][0]):
            results.pop()
        results.append((x, y))
    return results


def largest(f):
    return [(x, max(value(f, x), inverse(f, x))) for x in places(f)]


def smallest(f):
    return below([(x, min(value(f, x), inverse(f, x))) for x in places(f)])


def masses(f):
    """Probabilities of the outcomes under P and Q, all outcomes of the loss inf first."""
    p = [1 - f[0][1], *(a[1] - b[1] for a, b in pairwise(f))]
    return p, [F(0), *(b[0] - a[0] for a, b in pairwise(f))]


def power(p, q, level):
    result = F(0)
    for _, a, b in sorted(((a / (a + b), a, b) for a, b in zip(p, q) if a + b), reverse=True):  # noqa: B905
        if b > level:
            return result + a * level / b
        result, level = result + a, level - b
    return result


def times(p, q, count):
    first, second = [F(1)], [F(1)]
    for _ in range(count):
        first, second = [a * b for a in first for b in p], [a * b for a in second for b in q]
    return first, second


@st.composite
def curves(draw, most=4):
    """A curve with few corners; some begin below 1, some end before 1."""
    count = draw(st.integers(1, most))
    p = [F(draw(st.integers(0, 12))) for _ in range(count)]
    q = [F(draw(st.integers(0, 12))) for _ in range(count)]
    p.append(F(draw(st.sampled_from([0, 0, 1, 3]))))
    q.append(F(0))
    p.append(F(0))
    q.append(F(draw(st.sampled_from([0, 0, 1, 3]))))
    p.append(F(1))
    q.append(F(1))
    p, q = [x / sum(p) for x in p], [x / sum(q) for x in q]
    corners = [(F(0), F(1))]
    order = sorted((i for i in range(len(p)) if p[i] + q[i]), key=lambda i: -p[i] / (p[i] + q[i]))
    for i in order:
        x, y = corners[-1]
        corners.append((x + q[i], y - p[i]))
    by_key: dict[F, F] = {}
    for x, y in corners:  # a jump at level 0 keeps its lower end
        by_key[x] = min(y, by_key.get(x, y))
    return below(sorted(by_key.items()))
