"""Make canary rows, each with its own model parameter, and score if they were used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neyman.auditing.evidence import OneRun
from neyman.auditing.rate_limits import checked_confidence
from neyman.auditing.scores import checked_scores
from neyman.numerics import check
from neyman.numerics.arrays import Array
from neyman.numerics.relation import Neighboring, neighboring_of


@dataclass(frozen=True)
class Limits:
    """Limit the size of an audit by canaries."""

    canaries: int = 10**5  # largest number of canaries, or of silent parameters


LIMITS = Limits()


Coins = NDArray[np.bool_]


@dataclass(frozen=True)
class Canaries:
    """Represent canary rows for training, each with its own parameter, from `ny.audit.canaries`.

    The training gets further parameters: one per canary, and some silent ones with gradient 0 for
    every row. The gradient of a canary is ``norm`` in its own parameter and 0 elsewhere. So the
    model trains as before, and each further parameter gets the loop's noise.

    Args:
        inserted: True for each canary that is in the data. Under replace-one each canary is in the
            data, and its gradient is ``norm`` if True and ``-norm`` if not.
        norm: l2 norm of a canary's gradient before clipping.
        silent: number of parameters without a gradient.
        neighboring: "add-remove" or "replace-one".
        coins: True if fair coins chose ``inserted``.
    """

    inserted: Coins
    norm: float
    silent: int
    neighboring: Neighboring
    coins: bool

    @property
    def rows(self) -> int:
        """Return the number of rows that the canaries add to the data."""
        every = self.neighboring == "replace-one"
        return len(self.inserted) if every else int(self.inserted.sum())

    @property
    def width(self) -> int:
        """Return the number of further parameters."""
        return len(self.inserted) + self.silent

    def gradients(self, rows: object = None) -> Array:
        """Return the gradients of canary rows in the further parameters.

        In another library's loop, add a linear layer without bias, with the further parameters as
        weights. For a canary, feed it a row of this array, and the layer has this gradient. For a
        real row, feed it 0.

        Args:
            rows: indices of canary rows, from 0; all if None.

        Returns:
            An array of shape (rows, width).
        """
        chosen = np.arange(self.rows) if rows is None else np.asarray(rows)
        inside = chosen.ndim == 1 and (not chosen.size or chosen.dtype.kind in "iu")
        if not inside or ((chosen < 0) | (chosen >= self.rows)).any():
            raise ValueError(f"rows = {rows!r} must be whole numbers from 0 to {self.rows - 1}")
        chosen = chosen.astype(np.int64)
        gradients = np.zeros((len(chosen), self.width))
        if self.neighboring == "replace-one":
            places, signs = chosen, np.where(self.inserted[chosen], 1.0, -1.0)
        else:
            places, signs = np.flatnonzero(self.inserted)[chosen], np.ones(len(chosen))
        gradients[np.arange(len(chosen)), places] = signs * self.norm
        return gradients

    def join(
        self, gradient: Callable[[Any, Any], Any], *, start: object, rows: int
    ) -> dict[str, Any]:
        """Return the arguments ``gradient``, ``start``, and ``rows`` of `ny.train` with canaries.

        The canaries are the last rows. Their parameters are the last entries of a flat array.

        Args:
            gradient, start, rows: as for `ny.train` without canaries.

        Raises:
            TypeError, ValueError: `ny.train` does not accept an argument.
        """
        if not callable(gradient):
            raise TypeError(f"gradient = {gradient!r} must be a function, as for ny.train")
        real = check.integer("rows", rows)
        try:
            first = np.array(start, np.float64)
        except (TypeError, ValueError):
            raise TypeError("start must be an array of numbers, as for ny.train") from None
        if not np.isfinite(first).all():
            raise ValueError("start has a number that is not finite")

        def joined(parameters: Array, chosen: NDArray[np.int64]) -> Array:
            values = np.zeros((len(chosen), first.size + self.width))
            own = chosen < real
            if own.any():
                model = parameters[: first.size].reshape(first.shape)
                given: Any = gradient(model, chosen[own])
                detach = getattr(given, "detach", None)  # a torch tensor
                array = np.asarray(detach().cpu() if detach else given)
                if array.shape != (int(own.sum()), *first.shape):
                    raise ValueError(
                        f"gradient returned shape {array.shape} for {int(own.sum())} rows; it must "
                        f"be {(int(own.sum()), *first.shape)}: one gradient per row"
                    )
                values[own, : first.size] = array.reshape(len(array), first.size)
            if not own.all():
                values[~own, first.size :] = self.gradients(chosen[~own] - real)
            return values

        begin = np.concatenate([first.ravel(), np.zeros(self.width)])
        return {"gradient": joined, "start": begin, "rows": real + self.rows}

    def scores(self, parameters: object) -> Array:
        """Return one score per canary. A higher score means that the canary is in the data.

        The score is the distance by which training moved the canary's parameter against its
        gradient. With one step size, plain gradient steps, and every row in each batch, the score
        is the likelihood ratio.

        Args:
            parameters: the trained model's parameters. The further ones are last and started at 0.
        """
        return -self._further(parameters)[: len(self.inserted)]

    def noise_score(self, parameters: object) -> float:
        """Return minus the logarithm of the mean square of the silent parameters.

        These parameters show only the noise. If the noise depends on the number of rows in a batch,
        this score reveals if a row is in it, even if the row's own gradient is hidden.

        Args:
            parameters: as for `scores`.

        Raises:
            ValueError: there is no silent parameter.
        """
        if not self.silent:
            raise ValueError("silent = 0: make canaries with silent parameters for this score")
        quiet = self._further(parameters)[len(self.inserted) :]
        size = float(np.abs(quiet).max())
        if not size:
            return -float(np.log(1e-300))  # below the mean square of any noise
        return -2 * float(np.log(size)) - float(np.log(np.mean((quiet / size) ** 2)))

    def one_run(
        self,
        parameters: object,
        *,
        guesses: int | None = None,
        confidence: float | Fraction | str = 0.95,
    ) -> OneRun:
        """Return the evidence from one training with these canaries.

        Half of the guesses are "in the data", for the highest scores. Half are "not in the data",
        for the lowest scores.

        Args:
            parameters: as for `scores`.
            guesses: an even number, fixed before the training. If None, all canaries, minus one if
                their number is odd.
            confidence: in (0, 1).

        Returns:
            An `Evidence`, as from `ny.audit.one_run`.

        Raises:
            ValueError: coins did not choose the canaries in the data, or an argument is not valid.
        """
        if not self.coins:
            raise ValueError(
                "inserted was given; one run needs a fair coin per canary. Make the canaries "
                "without inserted=, or count the errors of many runs with ny.audit.scores"
            )
        sure = checked_confidence(confidence)
        scores = self.scores(parameters)
        number = len(scores) // 2 * 2 if guesses is None else check.integer("guesses", guesses, 2)
        if number > len(scores) or number % 2 or not number:
            raise ValueError(f"guesses = {guesses} must be even, from 2 to {len(scores)} canaries")
        order = np.argsort(scores, kind="stable")
        out, within = order[: number // 2], order[len(order) - number // 2 :]
        correct = int(self.inserted[within].sum() + (~self.inserted[out]).sum())
        return OneRun(sure, self.neighboring, len(scores), number, correct)

    def _further(self, parameters: object) -> Array:
        flat = checked_scores("parameters", np.ravel(np.asarray(parameters)))
        if len(flat) < self.width:
            raise ValueError(
                f"parameters has {len(flat)} numbers; it must have at least {self.width}: one per "
                f"canary ({len(self.inserted)}) and {self.silent} silent ones come last"
            )
        return flat[len(flat) - self.width :]


def canaries(
    count: int = 1,
    *,
    norm: float,
    inserted: object = None,
    silent: int = 200,
    neighboring: Neighboring = "add-remove",
) -> Canaries:
    """Return canaries for an audit of a training loop.

    There are two designs. *One run*: use many canaries. This function draws a fair coin per canary
    to put it into the data. Then call `Canaries.one_run`. *Many runs*: put one canary into the data
    in half of the runs. Then call `ny.audit.scores` or `ny.audit.search` on the scores.

    Args:
        count: number of canaries, up to 100,000.
        norm: l2 norm of a canary's gradient, above 0. A norm above the clipping norm, such as 10
            times, tests the clipping too.
        inserted: None for fair coins; or True, False, or one truth value per canary.
        silent: number of parameters that no row moves, up to 100,000. They show only the noise.
        neighboring: "add-remove": a canary is in the data or not. "replace-one": a canary is in the
            data with one of two opposite gradients.

    Returns:
        `Canaries`, with ``.join`` for `ny.train`, ``.gradients`` for other loops, and ``.scores``,
        ``.noise_score``, and ``.one_run`` for the trained parameters.

    Raises:
        TypeError, ValueError: an argument is not valid.

    Examples:
        >>> import neyman as ny
        >>> canaries = ny.audit.canaries(2, norm=10, inserted=[True, False], silent=1)
        >>> canaries.gradients()
        array([[10.,  0.,  0.]])
        >>> joined = canaries.join(lambda w, rows: w - rows[:, None], start=[0.0], rows=4)
        >>> joined["rows"], joined["start"].shape
        (5, (4,))

    Source: Nasr and others 2021 and 2023; Steinke, Nasr and Jagielski 2023.
    """
    number, quiet = check.integer("count", count, 1), check.integer("silent", silent)
    for name, value in (("count", number), ("silent", quiet)):
        if value > LIMITS.canaries:
            raise ValueError(f"{name} = {value} must be at most {LIMITS.canaries:,}")
    size = check.positive("norm", norm)
    neighboring_of(neighboring)
    if inserted is None:
        chosen = np.random.default_rng().integers(0, 2, number).astype(bool)
    else:
        given = np.asarray(inserted, object)
        are_truths = all(isinstance(one, (bool, np.bool_)) for one in given.flat)
        if not are_truths or given.shape not in ((), (number,)):
            raise TypeError(
                f"inserted must be None, True, False, or {number} truth values, one per canary"
            )
        chosen = np.broadcast_to(given.astype(bool), (number,)).copy()
    chosen.flags.writeable = False
    return Canaries(chosen, size, quiet, neighboring, inserted is None)
