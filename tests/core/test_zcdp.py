"""The curve of bare zCDP against its definition: every order, both directions."""

from __future__ import annotations

import mpmath as mp
import pytest

import neyman as ny


def worst_order(y, x, rho):
    """sup over orders and directions of D_a / (a rho) - 1, by search in 40 digits."""
    with mp.workdps(40):
        y, x, rho = mp.mpf(y), mp.mpf(x), mp.mpf(rho)
        best = -mp.inf
        for p, q in ((y, x), (x, y)):

            def ratio(t, p=p, q=q):
                a = 1 + mp.exp(t)
                moment = p**a * q ** (1 - a) + (1 - p) ** a * (1 - q) ** (1 - a)
                return mp.log(moment) / ((a - 1) * a * rho) - 1

            kl = (p * mp.log(p / q) + (1 - p) * mp.log((1 - p) / (1 - q))) / rho - 1
            places = [mp.mpf(k) / 4 for k in range(-50, 60)]
            values = [ratio(t) for t in places]
            i = max(range(len(values)), key=lambda j: values[j])
            low, high = places[max(i - 1, 0)], places[min(i + 1, len(places) - 1)]
            for _ in range(60):
                left, right = low + (high - low) * 0.382, low + (high - low) * 0.618
                low, high = (low, right) if ratio(left) > ratio(right) else (left, high)
            best = max(best, kl, values[i], ratio(low))
        return best


@pytest.mark.parametrize(
    ("rho", "level"),
    [("0.001", 1e-4), ("0.01", 0.9), ("0.1", 0.05), ("0.5", 1e-4), ("1", 1e-30), ("1", 0.1),
     ("2.63", 0.01), ("2.63", 0.1), ("10", 1e-10)],
)  # fmt: skip
def test_power_is_between_an_allowed_point_and_an_excluded_one(rho, level):
    found = ny.zcdp(rho).power(level)
    assert worst_order(found.upper, level, rho) >= 0
    assert worst_order(found.lower, level, rho) <= 0
    assert found.width <= 2e-6 * found.upper


@pytest.mark.parametrize("rho", ["0.1", "2.63"])
def test_delta_is_the_conjugate_of_power(rho):
    f = ny.zcdp(rho)
    for epsilon in (0.0, 1.0, 4.0):
        found = f.delta(epsilon)
        best = 0.0
        for log_level in range(-200, 0, 4):
            power = f.power(log_level=log_level / 10).lower
            best = max(best, power - float(mp.exp(epsilon + log_level / 10)))
        assert best <= found.upper
        assert found.lower <= found.upper < max(best * 1.1, 1e-3)


def test_many_bare_guarantees_compose_in_rho_before_they_become_a_curve():
    assert round((ny.zcdp("0.01") ** 100).epsilon(1e-6).upper, 2) == 7.77
    assert ny.zcdp("0.5") @ ny.zcdp("0.5") == ny.zcdp(1)


def test_a_gaussian_is_at_least_as_private_as_its_zcdp():
    assert ny.gdp(1) >= ny.zcdp("0.500001")
    assert ny.zcdp("0.500001").admits(ny.Gaussian(1))
    assert not ny.zcdp("0.499999").admits(ny.Gaussian(1))


def test_zcdp_implies_no_gdp_and_no_pure_epsilon():
    assert ny.zcdp(1).gdp().upper == float("inf")
    assert ny.zcdp(1).pure().upper == float("inf")


@pytest.mark.slow
@pytest.mark.parametrize("rho", [10**6, "1e-12"])
def test_extreme_rho_gives_a_finite_epsilon(rho):
    found = ny.zcdp(rho).epsilon(1e-10)
    rho = mp.mpf(float(rho))
    # Bun and Steinke's conversion is an upper bound of the truth.
    simple = rho + 2 * mp.sqrt(rho * mp.log(mp.mpf(10) ** 10))
    assert found.lower <= simple
    assert found.upper < 2 * simple
