"""The page of sums over a stream: ``python -m reproductions.streams.page docs`` writes it.

Every number on the page and in its figures is computed here, so that a test can tell a stale one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from neyman import DPSGD, MatrixMechanism, approximate, calibrate
from neyman.mechanisms import (
    Strategy,
    Toeplitz,
    Triangular,
    optimized_band,
    optimized_toeplitz,
    square_root,
)
from neyman.mechanisms.matrix_mechanism.blocks import Binned, Tree
from neyman.mechanisms.matrix_mechanism.factorization import optimized, prefix_bound
from reproductions.markdown import main, table
from reproductions.svg_chart import INK, PALE, Axis, Line, Note, chart

__all__ = ["circulant_bound", "pages"]

STEPS = 1024
EPOCHS, APART = 8, 64
BLUE, GREEN, RED, ORANGE = "#1f5fa8", "#2c7a4b", "#b03a2e", "#b9770e"


def pages() -> dict[str, str]:
    """Return the page and its figures, as their text by their names."""
    return {
        "streams.md": "\n\n".join((_opening(), _known(), _often(), _trained(), _safe(), _closing()))
        + "\n",
        "streams-steps.svg": _by_steps(),
        "streams-band.svg": _by_band(),
    }


def circulant_bound(steps: int) -> float:
    """Return the bound by the singular values of the skew-circulant of ones, for records in one
    step.

    The sum of 1 / (2 n sin((2j - 1) pi / (2n))) over j up to n, which is (log n + 0.5772 +
    log(8 / pi)) / pi and what vanishes. It is often quoted, and `prefix_bound` is above it.
    """
    angles = ((2 * j - 1) * math.pi / (2 * steps) for j in range(1, steps + 1))
    return math.fsum(0.5 / math.sin(angle) for angle in angles) / steps


@cache
def _mechanism(strategy: Strategy, times: int = 1, apart: int = 1) -> MatrixMechanism:
    return MatrixMechanism(strategy, 1, times, apart)


def _error(strategy: Strategy, times: int = 1, apart: int = 1) -> float:
    """Return the largest standard error of a prefix sum at mu = 1."""
    total = _mechanism(strategy, times, apart)
    return float(total.errors().max()) * total.shift()


def _opening() -> str:
    known = _mechanism(square_root(STEPS))
    return f"""\
# Sums over a stream

<!-- Written by `python -m reproductions.streams.page docs`. Edit that module. -->

Numbers arrive step by step, and each step releases the sum so far. With fresh noise the error grows
like the square root of the number of steps. The *matrix mechanism* measures C x with noise Z, and
reads the sums A x from it. Their noise A C⁻¹ Z cancels, and the error grows like a logarithm.

```python
import neyman as ny
from neyman import MatrixMechanism
from neyman.mechanisms import square_root

strategy = square_root(steps=1024)
sigma = ny.calibrate(lambda s: MatrixMechanism(strategy, s), budget=ny.gdp(1))
mechanism = MatrixMechanism(strategy, float(sigma))

mechanism.tradeoff().epsilon(delta=1e-6)     # a Gaussian curve: it adds to other mechanisms
mechanism.errors().max()                     # {_error(known.strategy):.4f}, the worst error
mechanism.gap()                              # {known.gap():.3f} times what no strategy can beat

stream = mechanism.stream()                  # on secure bits
for count in [3, 0, 5, 1]:
    print(stream.step(count))                # the noisy sum so far
```

![Largest error by the number of steps](streams-steps.svg)"""


def _known() -> str:
    band = optimized_toeplitz(STEPS, 64).strategy
    kinds: tuple[tuple[str, Strategy, str], ...] = (
        ("fresh noise at each step", Toeplitz(STEPS, (65536,)), "0"),
        ("`Tree(1024)`", Tree(STEPS), "11 sums"),
        ("`square_root(1024, band=64)`", square_root(STEPS, 64), "63 steps"),
        ("`optimized_toeplitz(1024, 64)`", band, "63 steps"),
        ("`Binned(1024, fine=4)`", Binned(STEPS, 4), f"{_capacity(Binned(STEPS, 4))} sums"),
        ("`square_root(1024)`", square_root(STEPS), "1023 steps"),
        (
            "`Triangular.normalized(square_root(1024))`",
            Triangular.normalized(square_root(STEPS)),
            "1023 steps",
        ),
    )
    rows = [
        (name, memory, f"{_error(s):.4f}", f"{_mechanism(s).gap():.3f}")
        for name, s, memory in kinds
    ]
    best = optimized(256)
    root = square_root(256)
    return f"""\
## {STEPS} steps, one record in one of them

{table(("strategy", "remembered", "largest error", "times the bound"), rows, words=2)}

*Error*: standard error at μ = 1, for a record that moves one step by 1. *Bound*: no Gaussian
strategy has a largest error below {prefix_bound(STEPS):.4f}, the sum of the singular values of A
over n. (The skew-circulant matrix of ones gives {circulant_bound(STEPS):.4f}.)

`optimized(workload)` finds the best strategy for any queries of up to 1024 steps. For the prefix
sums of 256 steps it is {100 * (best.gap - 1):.2f}% above its bound, with {best.error:.4f}. The
square root has {_error(root):.4f}."""


def _capacity(strategy: Strategy) -> int:
    """How many sums a stream of blocks holds at most, by what it does."""
    from neyman.mechanisms.matrix_mechanism.noise_stream import Blocks

    memory = Blocks([1] * strategy.steps, Binned(strategy.steps).fine, 1, int)
    for _ in range(strategy.steps):
        memory.push(memory.weighted())
    return memory.capacity


def _often() -> str:
    n, apart = 256, 32
    result = optimized_band(n, apart, participations=EPOCHS, separation=apart)
    root = _error(square_root(n), EPOCHS, apart)
    band = _error(square_root(n, apart), EPOCHS, apart)
    return f"""\
## Records that take part more often

In training a record returns: in at most k steps, at least b apart. Every strategy takes both
numbers, and its sensitivity is a proven upper bound over all such patterns. (`.subsample` of such a
mechanism draws one sample of all records before the stream begins, and not one per step.)

```python
from neyman.mechanisms import optimized_band

found = optimized_band({n}, band={apart}, participations={EPOCHS}, separation={apart})
mechanism = MatrixMechanism(found.strategy, sigma=4, participations={EPOCHS}, separation={apart})
mechanism.tradeoff().epsilon(delta=1e-6)
print(found.gap)                             # {result.gap:.3f}
stream = mechanism.stream(width=1000)        # vectors, such as clipped gradients on a grid
```

There the largest error is {result.error:.2f}, and no strategy has less than {result.bound:.2f}. The
square root has {band:.2f} with that band and {root:.2f} without.

![Largest error by the band](streams-band.svg)

A band wider than the separation helps little."""


RUN_STEPS = 200
TARGETS = (1, 4, 16)


def _training(sampling: str, band: int, sigma: float) -> DPSGD:
    strategy = square_root(RUN_STEPS, band) if band > 1 else None
    return DPSGD(1437, 144, sigma, 20, sampling, strategy=strategy)


def _last_error(sampling: str, band: int, epsilon: float) -> float:
    """Return the standard error of the sum of all steps, over the
    clipping norm, at the least noise.
    """
    target = approximate(epsilon, 1e-5)
    sigma = float(calibrate(lambda s: _training(sampling, band, s), budget=target))
    return _training(sampling, band, sigma).noise(1) * square_root(RUN_STEPS, band).spread()[-1]


def _trained() -> str:
    kinds = [("poisson", 1), ("poisson", 4), ("poisson", 9), ("cyclic", 1), ("cyclic", 10)]
    rows = [
        [f'"{sampling}"', "independent" if band == 1 else f"band {band}"]
        + [f"{_last_error(sampling, band, epsilon):.1f}" for epsilon in TARGETS]
        for sampling, band in kinds
    ]
    epsilon = _training("poisson", 9, 2.03).tradeoff().epsilon(1e-5)
    return f"""\
## Training with correlated noise

`ny.train` and `ny.torch.train` take a strategy as the noise of their steps:

```python
mechanism = ny.DPSGD(
    n=1437, batch=144, sigma=2.03, epochs=20, strategy=square_root({RUN_STEPS}, band=9)
)
mechanism.tradeoff().epsilon(delta=1e-5)     # {epsilon:.2f}
```

Gradients are clipped, rounded to a grid, and added up in whole numbers. The noise is exact, and the
parameters follow from the released rows alone ([MM-8](certificates/matrix-mechanism.md#mm-8)). The
loop stores one vector of the model's size per step of the band.

- `sampling="cyclic"`: records come in a fixed order, once per pass. The guarantee is that of the
  matrix mechanism for k passes, n / batch steps apart. The strategy has one row per step. Either no
  weight is below 0, or the band is at most n / batch.
- `sampling="poisson"`: each record is in one of b groups for band b. The groups take part in turn,
  each record by its own coin. Each block of b steps is one sampled Gaussian step
  ([MM-10](certificates/matrix-mechanism.md#mm-10)).

This is the error of the sum of all {RUN_STEPS} steps, over the clipping norm, for n = 1,437,
batches of 144, and 20 epochs, at the least noise for ε (δ = 10⁻⁵):

{table(["batches", "noise", *(f"ε = {epsilon}" for epsilon in TARGETS)], rows, words=2)}

Correlated noise helps at a large ε, or where batches cannot be drawn. At ε = 1 sampling helps more.

**The memory is secret.** With the released parameters it gives the exact sums, so no file has it. A
killed run resumes with an empty memory, and the charge covers that
([MM-9](certificates/matrix-mechanism.md#mm-9), [decision](decisions.md#noise-is-not-saved)). The
noise then no longer cancels the earlier noise.

**Refused, because it is not proven here**: amplification for a band that is wider than the number
of groups, for batches of fixed size, for "allocated" and "k-of-t" batches (balls in bins), and for
`Tree` and `Binned` with Poisson batches. Training refuses `Tree` altogether. Batches with a random
distance of at least b (b-min-sep) have no bound here."""


def _safe() -> str:
    return """\
## What is certified

- **The release** is W x + Z, with W = 65536 C and x in whole numbers, and Z exact discrete Gaussian
  noise on secure bits. Floating-point arithmetic after it costs digits and no privacy.
- **The curve** is Gaussian, with the μ of [MM-1](certificates/matrix-mechanism.md#mm-1). It also
  holds if each step (and what a record does in it) depends on earlier releases.
- **Sensitivity** is computed in whole numbers, as a bound on Σ |G_ij| over the steps i, j of each
  possible pattern, G = WᵀW. It covers numbers up to 1 in size and vectors of norm up to 1.
  It can be too large.
- **Errors and bounds on errors** are computed in floating point, and are not a `Bound`.

Nothing is proven about a library that adds *floating-point* noise."""


def _closing() -> str:
    return """\
Sources: Dwork et al. 2010, Chan et al. 2011 (trees); Honaker 2015; Li et al. 2015 (the matrix
mechanism); Denisov et al. 2022; Fichtenberger et al. 2023; Choquette-Choo et al. 2023; Andersson
and Pagh 2024; Henzinger et al. 2025."""


def _by_steps() -> str:
    sizes = [2**level for level in range(2, 13)]

    def line(name: str, of: Callable[[int], float], color: str, dash: str = "") -> Line:
        return Line([(float(n), of(n)) for n in sizes], name, color, 1.8, dash)

    marks = [
        line("", math.sqrt, PALE),
        Note(165, 12.7, "fresh noise"),
        line("tree", lambda n: _error(Tree(n, optimal=False)), RED),
        line("tree, read best", lambda n: _error(Tree(n)), ORANGE),
        line("blocks", lambda n: _error(Binned(n, 2)), GREEN),
        line("square root", lambda n: _error(square_root(n)), BLUE),
        line("no less is possible", prefix_bound, INK, "5 4"),
    ]
    ticks = tuple((float(n), f"{n}") for n in sizes if n.bit_length() % 2)
    return chart(
        Axis(4, 4096, "steps", log=True, ticks=ticks),
        Axis(0, 14, "largest standard error of a sum, at μ = 1"),
        marks,
        title="Largest standard error of a prefix sum by the number of steps, for five mechanisms",
    )


def _by_band() -> str:
    n = EPOCHS * APART
    bands = [2**level for level in range(10)]

    def line(name: str, times: int, color: str, best: bool) -> Line:
        apart = APART if times > 1 else 1
        points = []
        for band in bands:
            if not best:
                points.append((float(band), _error(square_root(n, band), times, apart)))
            elif band <= 64:
                result = optimized_toeplitz(n, band, participations=times, separation=apart)
                points.append((float(band), result.error))
        return Line(points, name, color, 1.8, "" if not best else "1.5 3")

    several = f"{EPOCHS} steps a record, {APART} apart"
    marks = [
        line(several, EPOCHS, RED, False),
        line("", EPOCHS, RED, True),
        Line([(1.0, y := prefix_bound(n, EPOCHS, APART)), (512.0, y)], "", RED, 1.2, "6 4"),
        line("one step a record", 1, BLUE, False),
        line("", 1, BLUE, True),
        Line([(1.0, y := prefix_bound(n)), (512.0, y)], "", BLUE, 1.2, "6 4"),
    ]
    return chart(
        Axis(
            1, 512, f"band, of {n} steps", log=True, ticks=tuple((float(b), f"{b}") for b in bands)
        ),
        Axis(
            2,
            64,
            "largest standard error of a sum, at μ = 1",
            log=True,
            ticks=tuple((float(v), f"{v}") for v in (2, 4, 8, 16, 32, 64)),
        ),
        marks,
        title="Largest standard error by the band, for records in one step and in eight",
        heading="Line: square root · dots: optimized_toeplitz · dashes: no less is possible",
    )


if __name__ == "__main__":
    main(lambda tell: pages())
