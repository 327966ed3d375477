"""Mechanisms: frozen descriptions of randomness, closed under ``+``, ``*`` and ``.subsample``.

Public: `Mechanism` and its combinators (algebra); `Gaussian`, `Laplace`, `DiscreteGaussian`,
`DiscreteLaplace` (additive); `RandomizedResponse` (response).
"""
