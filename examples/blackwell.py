"""Print what Renyi divergences do not see: Proposition 2.2 of Su's review (2024).

At the same epsilon = mu the Gaussian tells its two hypotheses apart better than randomized response
by every Renyi divergence, and worse by total variation. So no set of Renyi bounds decides which of
two mechanisms is the more private one; the trade-off curve does (Blackwell 1953).
"""

import math

from scipy.special import ndtr

import neyman as ny
from neyman.curves import garbling

EPSILON = 1
response, gaussian = ny.pure(EPSILON), ny.gdp(EPSILON)

print(f"{'':22}{'response':>12}{'Gaussian':>12}   tells more")
rows = [
    *((f"Renyi, order {a:g}", response.renyi(a), gaussian.renyi(a)) for a in (1, 2, 4, 16, 64)),
    ("total variation", response.advantage(), gaussian.advantage()),
]
for name, a, b in rows:
    more = "Gaussian" if b.lower > a.upper else "response"
    print(f"{name:22}{a.upper:12.6f}{b.upper:12.6f}   {more}")
print(
    f"\nAt every order a the response has at most a rho, rho = {response.zcdp().upper:.6f}; "
    f"the Gaussian has a rho,\nrho = {gaussian.zcdp().lower:.6f}. "
    f"Yet in Blackwell's order the two are {ny.compare(gaussian, response)}."
)

p = 1 / (1 + math.exp(-EPSILON))
truth, lie = [p, 1 - p], [1 - p, p]


def sign(mu):
    """The Gaussian's outcome seen only as a yes or no: the cut halfway is its fairest test."""
    yes = float(ndtr(mu / 2))
    return [yes, 1 - yes], [1 - yes, yes]


test = garbling(*sign(EPSILON), truth, lie).test
assert test is not None
print(
    f"No channel makes the response of the Gaussian: at level {float(test.level):.4f} a test of "
    f"the response has power\n{float(test.power):.4f}; the best of the Gaussian has "
    f"{gaussian.power(float(test.level)).upper:.4f}."
)
low, high = 1.0, 2.0
while high - low > 1e-8:
    middle = (low + high) / 2
    low, high = (low, middle) if garbling(*sign(middle), truth, lie).exists else (middle, high)
print(
    f"From mu = {high:.7f} on there is one, and from no smaller mu: the response's own\ncorner "
    f"asks for {response.gdp().upper:.7f}."
)
