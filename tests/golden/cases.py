"""Cases of the golden file: curves by expression, and what each is asked.

Every expression is Python text over ``ny`` and ``F`` (Fraction), so that it names only what users
call.
"""

__all__ = ["CASES", "CURVES", "DELTAS", "EPSILONS"]

DELTAS = (1e-6,)
EPSILONS = (0.0, 0.5, 3.0)

# Mechanisms: their JSON is recorded too.
CASES = [
    "ny.Gaussian(1)",
    "ny.Gaussian(F('0.3'), 2)",
    "ny.Gaussian(30) * 500",
    "ny.Laplace(1)",
    "ny.Laplace(2) + ny.Gaussian(1)",
    "ny.Laplace(10) * 50",
    "ny.Gaussian(3) * 10 + ny.Laplace(5) * 5",
    "ny.Gaussian(30) * 500 + ny.Laplace(50) * 200",
    "ny.DiscreteGaussian(1)",
    "ny.DiscreteGaussian(10) * 100",
    "ny.DiscreteGaussian(3) * 20 + ny.DiscreteGaussian(3, 2) * 5",
    "ny.DiscreteGaussian(3) * 3 + ny.DiscreteGaussian(F(7, 2)) * 4",
    "ny.DiscreteGaussian(sigma=3, sensitivity=[(1, 1), (2, 0)]) * 5 + ny.Laplace(scale=20)",
    "ny.DiscreteGaussian('0.7') + ny.RandomizedResponse(2) * 2",
    "ny.DiscreteGaussian(5, squared_norm=4) * 3",
    "ny.RoundedGaussian(2)",
    "ny.RoundedGaussian(3, squared_norm=3) * 5",
    "ny.DiscreteLaplace(4, 2) * 6",
    "ny.DiscreteLaplace(20, 3) * 300",
    "ny.RandomizedResponse(1)",
    "ny.RandomizedResponse(F('0.3'), 5) * 3",
    "ny.RandomizedResponse(F('0.1')) * 1000",
    "ny.RandomizedResponse(F('0.01'), 5) * 10_000",
    "ny.RandomizedResponse(1) * 5 + ny.Gaussian(1)",
    "ny.LocalRandomizer(1) * 2",
    "ny.LocalRandomizer(1).shuffle(users=10_000)",
    "ny.RandomizedResponse(1, 4).shuffle(users=1000)",
    "ny.CategoryResponse(1, 4)",
    "ny.HadamardResponse(1, 7)",
    "ny.UnaryEncoding(1, 4)",
    "ny.ExponentialMechanism(F('0.1')) * 100",
    "ny.ExponentialMechanism(1)",
    "ny.ReportNoisyMax(scale=2)",
    "ny.SparseVector(threshold_scale=2, query_scale=4, answers=3)",
    "ny.RandomSubset(10, 1000)",
    "ny.NonPrivate()",
    "ny.GaussianMixture(sigma=1, sensitivities=[0, 1, 2], probabilities=[.5, .3, .2])",
    "ny.CanonicalNoise(ny.pure(1)) * 3",
    "ny.Gaussian(1).subsample(rate=F('0.01'))",
    "ny.Gaussian(1).subsample(rate=F('0.01')) * 1000",
    "ny.Gaussian(F('0.8')).subsample(rate=256 / 60_000) * 14_062 + ny.Laplace(scale=20)",
    "ny.Gaussian(2).subsample(rate=1e-4) * 300",
    "ny.Gaussian(1).subsample(rate=F('0.1'), neighboring='replace-one') * 10",
    "ny.Laplace(1).subsample(rate=F('0.1')) * 20",
    "ny.Laplace(1).subsample(size=10, population=100) * 5",
    "ny.Gaussian(1).subsample(size=10, population=100) * 5",
    "ny.DiscreteLaplace(1).subsample(rate=F('0.2')) * 3",
    "ny.Gaussian(1).shuffled_batches(10) * 3",
    "ny.Gaussian(2).random_allocation(4) * 2",
    "ny.DPSGD(n=1000, batch=100, sigma=2, epochs=3)",
    "ny.NoisyGradientDescent(n=100, steps=10, sigma=1, sensitivity=1, contraction=F('0.9'))",
    "ny.NoisyCyclicGradientDescent(n=100, batch=10, epochs=3, sigma=1, sensitivity=1,"
    " contraction=F('0.9'))",
    "ny.NoisyStochasticGradientDescent(n=100, batch=10, steps=5, sigma=1, sensitivity=1,"
    " contraction=F('0.9'))",
    "ny.MatrixMechanism(square_root(16), 2, participations=2, separation=4)",
    "ny.Marginals({'a': 2, 'b': 3}, {('a',): 1, (): 2, ('b',): 3, ('a', 'b'): 4})",
    "ny.Mechanism.nothing()",
]

# Trade-off functions that came in as definitions or data.
CURVES = [
    "ny.pure(1)",
    "ny.pure(F('0.1')) ** 30",
    "ny.approximate(1, 1e-6)",
    "ny.approximate(F(1, 2), F(1, 1000)) ** 5",
    "ny.gdp(1) @ ny.pure(1)",
    "ny.zcdp(F('0.01')) ** 100",
    "ny.zcdp(1, delta=F(1, 10**6))",
    "ny.zcdp(F('0.1')) @ ny.gdp(1)",
    "ny.renyi({2: 0.1, 8: 0.5})",
    "ny.tcdp(F('0.1'), 10)",
    "ny.pbdp(1, F('0.01'))",
    "ny.perfect()",
    "ny.between([.5, .3, .2], [.2, .3, .5])",
    "ny.from_points([0, .1, 1], [.9, .5, 0])",
    "ny.from_profile({0: .3, 1: .01})",
    "ny.total_variation(F('0.2'))",
    "ny.mixture([.5, .5], [ny.pure(1), ny.gdp(1)], observed=True)",
    "ny.mixture([.5, .5], [ny.pure(1), ny.gdp(1)], observed=False)",
    "ny.Gaussian(1).subsample(rate=.2).tradeoff().symmetric()",
    "ny.Laplace(1).tradeoff().group(3)",
    "ny.between([.5, .5], [.9, .1]).mutual()",
    "ny.approximate(1, 1e-3).inverse()",
]
