"""The page on posterior samples: ``python -m reproductions.posterior.page docs`` writes it.

Every number on the page is computed here, so that a test can tell a stale one.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from neyman import NoisyGradientDescent, PosteriorSample, Tradeoff
from reproductions.markdown import main, table
from reproductions.panels import Axis, Label, Line, Panel, figure

__all__ = ["pages"]

ROWS, LIPSCHITZ, RIDGE = 1000, 1, Fraction(1, 100)
L, M = 2 * LIPSCHITZ, ROWS * RIDGE  # of the difference of two potentials, and their convexity
CHAIN, STEPS = 1e-3, 1000
GRID = np.linspace(-6, 6, 4001)
Floats = NDArray[np.float64]


def pages() -> dict[str, str]:
    """Return the page and its figure, each the text of a file by its name."""
    text = "\n\n".join([_opening(), _observers(), _bounded(), _limits()])
    return {"posterior-sample.md": text + "\n", "posterior-sample.svg": _figure()}


def _exact() -> PosteriorSample:
    return PosteriorSample(lipschitz=L, convexity=M)


def _within(v: float) -> PosteriorSample:
    return PosteriorSample(lipschitz=L, convexity=M, exact=False, total_variation=v)


def _noisy() -> PosteriorSample:
    return PosteriorSample(lipschitz=L, convexity=M, exact=False, wasserstein=0.01, sigma=0.1)


def _langevin(steps: int) -> NoisyGradientDescent:
    return NoisyGradientDescent.langevin(
        n=ROWS,
        steps=steps,
        step_size=1.0,
        temperature=Fraction(1, ROWS),
        sensitivity=L,
        strong_convexity=float(RIDGE),
        smoothness=0.26,
    )


def _opening() -> str:
    f = _exact().tradeoff()
    return f"""\
# One draw from a posterior

<!-- Written by `python -m reproductions.posterior.page docs`. Edit that module. -->

`ny.PosteriorSample` accounts for one draw from a posterior, whose spread is the noise. If both
neighbors' densities are proportional to e^−F with m-strongly convex potentials F, and the
*difference* of the potentials is L-Lipschitz, the curve is at least that of a Gaussian with
μ = L / √m. It is exact for Gaussian posteriors.

This is a logistic regression on {ROWS:,} rows of norm at most 1, with the ridge penalty
{ROWS} · {float(RIDGE):g} |w|² / 2, which gives m = {float(M):g}. The loss of a row is
{LIPSCHITZ}-Lipschitz. A replaced row removes one term and adds another, so L = {L}.

```pycon
>>> import neyman as ny
>>> draw = ny.PosteriorSample(lipschitz={L}, convexity={float(M):g})
>>> f = draw.tradeoff()
>>> round(float(f.gdp()), 4), round(float(f.power(level=0.05)), 4)
({round(float(f.gdp()), 4)}, {round(float(f.power(level=0.05)), 4)})
>>> round(float((draw * 9).tradeoff().gdp()) / float(f.gdp()), 6)  # nine draws
3.0...
```

![What each observer can learn](posterior-sample.svg)

*Left: the curves of the observers below. Right: attacks on posteriors on the line with one L and m,
by quadrature. The linear one attains the bound.*"""


def _observers() -> str:
    head = ("released", "observer knows", "power at level 0.05", "δ at ε = 3")
    mechanisms = {
        "one exact draw": ("the draw", _exact().tradeoff()),
        "the end of a chain at total variation 10⁻⁶": ("the last point", _within(1e-6).tradeoff()),
        "the end of a chain at total variation 10⁻³": ("the last point", _within(CHAIN).tradeoff()),
        "the end of a chain at W∞ distance 0.01, with noise 0.1": (
            "the noisy point",
            _noisy().tradeoff(),
        ),
        "Langevin, 1,000 steps": ("the last point", _langevin(STEPS).tradeoff()),
        "Langevin, 1,000 steps, all released": (
            "every point",
            _langevin(STEPS).all_iterates().tradeoff(),
        ),
    }
    rows = [
        (name, observed, f"{f.power(level=0.05).upper:.4f}", f"{f.delta(epsilon=3).upper:.2e}")
        for name, (observed, f) in mechanisms.items()
    ]
    return f"""\
## Who sees what

{table(head, rows, words=2)}

- **An exact draw.** The observer knows the draw, the model, the prior, and every other row. Draws
  compose: n of them have μ √n.
- **A chain of finitely many steps** has another distribution. `PosteriorSample(exact=False)` needs
  a bound on the distance that is proven for *every* dataset. Diagnostics of convergence do not
  prove one. `total_variation=` adds a probability that everything is revealed. `wasserstein=` and
  `sigma=` add noise that hides the distance and leaves the curve Gaussian.
- **Langevin dynamics** needs no distance. Its steps are noisy gradients, so it is
  `ny.NoisyGradientDescent`, at every number of steps.

```pycon
>>> chain = ny.NoisyGradientDescent.langevin(
...     n={ROWS}, steps={STEPS}, step_size=1, temperature={1 / ROWS:g}, sensitivity={L},
...     strong_convexity={float(RIDGE):g}, smoothness=0.26,
... )
>>> chain.tradeoff() >= f
True
>>> ny.PosteriorSample(lipschitz={L}, convexity={float(M):g}, exact=False)
Traceback (most recent call last):
...
ValueError: exact = False needs one certified distance of the chain's distribution from the ...
```

A step w − η (mean gradient) + √(2 η T) Z has σ = √(2 T / η) in the units of
`NoisyGradientDescent`, and T = 1 / n for the posterior of a sum of n losses. In the limit of short
steps and long chains its μ is that of the exact draw.

To run the chain with exact noise, use `ny.train` with all rows in each batch. With noise σ and the
norm C of a clipped gradient, the step size of the sum of the losses is h = 2 / (σ C)² at
temperature 1. Clipping changes the target:

```python
import numpy as np

x = np.random.default_rng(1).normal(0.4, 1, 500)  # stands for private data
sigma, clip = 40.0, 4.0
h = 2 / (sigma * clip) ** 2
ledger = ny.Ledger("chains.db")
account = ledger.create(
    "x@1", protects="person", neighboring="add-remove", rows=1, currency="renyi:8", cap=5
)
run = ny.train(
    lambda w, rows: w - x[rows, None], start=[0.0], rows=500, piece=500, clip=clip,
    mechanism=ny.DPSGD(n=500, batch=500, sigma=sigma, epochs=60), step_size=h * 500,
    ledger=ledger, dataset="x@1", out="chain",
)
print(abs(float(run.parameters[0]) - x.mean()) < 0.3)
```

```
True
```

Its receipt covers every point of the chain."""


def _bounded() -> str:
    f = PosteriorSample.bounded(spread=0.5, neighboring="replace-one").tradeoff()
    return f"""\
## Bounded log-likelihoods

If one row's log-likelihood has a range of at most B over *all* w that the prior allows, no
convexity is needed. The draw is an exponential mechanism with range B (a row is added or removed)
or 2 B (replaced).

```pycon
>>> bounded = ny.PosteriorSample.bounded(spread=0.5, neighboring="replace-one")
>>> bounded
ExponentialMechanism(epsilon=Fraction(1, 1))
>>> round(float(bounded.tradeoff().power(level=0.05)), 4)
{round(float(f.power(level=0.05)), 4)}
```"""


def _limits() -> str:
    return """\
## What makes it fail

- The log of the likelihood is neither Lipschitz nor bounded, such as a Gaussian likelihood on
  unbounded rows or weights. Clip the rows, or restrict w to a convex set, in the model itself.
- L covers only the rows in the data. It must be a bound over all possible rows.
- A posterior mean, a credible interval, or an average uses many draws. Each draw is charged.
- The prior or the penalty was chosen from the data.
- Draws in floating point follow their distribution up to rounding, which is not covered.

The proofs are in the [certificate](certificates/posterior-sample.md). The result for exact draws is
due to Gopi, Lee, and Liu (2022)."""


def _law(potential: Floats) -> Floats:
    weight = np.exp(-(potential - potential.min()))
    return weight / weight.sum()


def _attack(p: Floats, q: Floats) -> list[tuple[float, float]]:
    order = np.argsort(-(q / np.maximum(p, 1e-300)), kind="stable")
    level, power = np.cumsum(p[order]), np.cumsum(q[order])
    grid = np.linspace(0, 1, 101)
    return [
        (float(a), float(b))
        for a, b in zip(grid, np.interp(grid, [0, *level], [0, *power]), strict=True)
    ]


def _figure() -> str:
    levels = [k / 200 for k in range(1, 20)] + [k / 50 for k in range(5, 51)]
    guess = Line([(0, 0), (1, 1)], "guess")

    def line(f: Tradeoff, kind: str, label: Label | None, *, dashed: bool = False) -> Line:
        points = [(a, float(p)) for a, p in zip(levels, f.powers(levels), strict=True)]
        return Line([(0.0, 0.0), *points], kind, label, dashed)

    observers = (
        guess,
        line(
            _langevin(STEPS).all_iterates().tradeoff(),
            "fourth",
            Label("Langevin,\nall points", (0.16, 0.9)),
        ),
        line(_noisy().tradeoff(), "bound", Label("a chain\nwith noise", (0.7, 0.66), (0.5, 0.79))),
        line(
            _exact().tradeoff(),
            "exact",
            Label("an exact draw, or\nLangevin, last point", (0.58, 0.36), (0.4, 0.65)),
        ),
        line(_langevin(STEPS).tradeoff(), "other", None, dashed=True),
    )
    convexity, slope = 1.0, 1.0
    base = convexity * GRID**2 / 2
    pairs = {
        "linear": ("exact", slope * GRID),
        "log cosh": ("other", slope * np.log(np.cosh(GRID - 0.5))),
        "|w|": ("fourth", slope * np.abs(GRID)),
    }
    bound = PosteriorSample(lipschitz=1, convexity=1).tradeoff()
    places = {"log cosh": ((0.6, 0.42), (0.47, 0.62)), "|w|": ((0.78, 0.66), (0.6, 0.79))}
    attacks = []
    for name, (kind, difference) in pairs.items():
        p, q = _law(base), _law(base + difference)
        label = Label(name, *places[name]) if name in places else None
        attacks.append(Line(_attack(p, q), kind, label))
    quadrature = (
        guess,
        line(bound, "bound", Label("the bound,\nand linear", (0.05, 0.84)), dashed=False),
        *attacks[1:],
        Line(attacks[0].points, "exact", None, True),
    )
    ticks = tuple((k / 5, f"{k / 5:g}") for k in range(6))
    return figure(
        [
            Panel("Observers", "", observers),
            Panel("Attacks on posteriors, L = m = 1", "", quadrature),
        ],
        Axis("false positive rate", ticks),
        Axis("true positive rate, at most", ticks),
        title="Power by level of the best attack on posterior samples",
        columns=2,
        large=1,
        cell=(420, 400),
    )


if __name__ == "__main__":
    main(lambda tell: pages())
