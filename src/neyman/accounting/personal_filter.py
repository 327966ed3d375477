"""Filter per person: a person takes part only in steps that their remaining budget covers.

The cost of a step depends on the person's data, so the budget used and the list of participants are
secret.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from neyman.curves.tradeoff.guarantees import zcdp
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.noise.bits import Bits
from neyman.noise.integer_noise import discrete_gaussian
from neyman.noise.parameters import secure_unless
from neyman.numerics import check


@dataclass(frozen=True)
class Limits:
    """Limit the arguments, so that each person's budget fits into 64 bits."""

    people: int = 10**8  # 8 bytes each
    sigma: int = (1 << 53) - 1  # largest sigma that neyman.noise draws


LIMITS = Limits()

_process = [object()]  # a new object in each child of os.fork, because process ids are reused


def _in_child() -> None:
    _process[0] = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


class PersonalFilter:
    """Compute noisy sums of vectors, until each person's own budget is used up.

    A step costs a person |g|^2 / (2 sigma^2), with their own vector g. So a person with small
    vectors takes part in more steps than others. All steps together are rho-zCDP for each person,
    under add-remove. Each vector may depend on the person's record and on all earlier sums.

    The object holds a secret: the budget that each person has used. No public attribute, text,
    error, log, copy, or pickle contains it. The list of participants is secret too, so the number
    of people in a sum is not public.

    Threads may share a filter: steps run one at a time. A forked child process is refused, because
    it would spend the same budgets a second time. No attribute can be changed.

    Args:
        budget: rho per person, above 0. Public.
        sigma: the standard deviation of the discrete Gaussian noise on each number, above 0 and at
            most 2^53 - 1. Public.
        people: the declared number of rows per step, at most 10^8. It is public, so do not count a
            private table: declare a number, and fill unused rows with zeros.

    Raises:
        TypeError: an argument is not a number, or ``__init__`` is called twice.
        ValueError: a budget, a sigma, or a number of people is out of range.

    Examples:
        >>> import neyman as ny
        >>> from neyman.accounting.personal_filter import PersonalFilter
        >>> import numpy as np
        >>> steps = PersonalFilter(budget=0.5, sigma=20, people=3)
        >>> noisy = steps.step(np.array([[3, 4], [0, 1], [20, 0]]))
        >>> steps
        PersonalFilter(budget=Fraction(1, 2), sigma=Fraction(20, 1))
        >>> round(float(steps.tradeoff().epsilon(delta=1e-6)), 2)
        5.22

    Source: Feldman and Zrnic 2021; [PB-2].
    """

    __slots__ = ("_secret", "budget", "people", "sigma")

    _secret: _Used
    budget: Fraction
    people: int
    sigma: Fraction

    def __init__(
        self, *, budget: float | Fraction | str, sigma: float | Fraction | str, people: int
    ) -> None:
        if hasattr(self, "_secret"):
            raise TypeError(
                "__init__ was called on a PersonalFilter in use, which would reset what each "
                "person has used: make a new PersonalFilter for other people"
            )
        rho, scale = check.exact("budget", budget), check.exact("sigma", sigma)
        if rho <= 0:
            raise ValueError(f"budget = {budget!r} must be above 0")
        if not 0 < scale <= LIMITS.sigma:
            raise ValueError(f"sigma = {sigma!r} must be above 0 and at most 2^53 - 1")
        rows = check.integer("people", people)
        if rows > LIMITS.people:
            raise ValueError(
                f"people = {people!r} must be at most {LIMITS.people}: split the people into "
                "groups, with one filter for each group"
            )
        # Budget per person: sum of the squared norms of their vectors.
        secret = _Used(min(floor(2 * scale**2 * rho), 1 << 62), rows)
        for name, value in (("budget", rho), ("sigma", scale), ("people", rows)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_secret", secret)

    def step(self, vectors: NDArray[Any], bits: Bits | None = None) -> NDArray[np.int64]:
        """Return the noisy sum of the vectors of all people who can still pay for this step.

        A person is left out if the step would exceed their budget, or if a number in their row is
        above 2^20 in size. Everyone else takes part. Do not sample people: this cost is not valid
        for a sampled step. No error depends on a number in the array. A step that raises an error
        costs nothing.

        Args:
            vectors: a NumPy array of an integer dtype, shape (people, d), each number at most 2^20
                in size. A person's row depends only on their own record and on released values.
                Choose d and the dtype without the data. Round and clip first.
            bits: the source of randomness; fresh `SecureBits` if none is given.

        Raises:
            TypeError: vectors is not a NumPy array of an integer dtype, or bits is no `Bits`.
            ValueError: the array has another shape.
            RuntimeError: the call is in a forked child process.
        """
        randomness = secure_unless(bits)
        rows: Any = vectors
        wanted = f"a NumPy array of an integer dtype, of shape (people, d) = ({self.people}, d)"
        advice = "scale, round, and clip each row, then call np.array(rows, dtype=np.int64)"
        if type(rows) is not np.ndarray:  # subclasses have their own methods, such as masks
            raise TypeError(f"vectors is a {type(rows).__name__} and must be {wanted}: {advice}")
        if rows.dtype.kind not in "iu":
            raise TypeError(f"vectors has the dtype {rows.dtype} and must be {wanted}: {advice}")
        if rows.ndim != 2:
            raise ValueError(f"vectors has {rows.ndim} dimensions and must be {wanted}")
        if len(rows) != self.people:
            raise ValueError(
                f"vectors must have people = {self.people} rows, the declared number: give a row "
                "of zeros for a person who is absent. The number of rows found is not shown, "
                "because the number of records may be secret"
            )
        width = rows.shape[1]
        norm_size = 1 << 22  # numbers per vector: the sum of their squares is at most 2^62
        if not 1 <= width <= norm_size:
            raise ValueError(f"vectors has {width} numbers per row and must have 1 to {norm_size}")
        return self._secret.pay(rows, lambda: discrete_gaussian(self.sigma**2, width, randomness))

    def tradeoff(self) -> Tradeoff:
        """Return the curve of any number of steps together: the rho-zCDP curve."""
        return Tradeoff.of(zcdp(self.budget).alternatives, "add-remove")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(
            f"{name} of a PersonalFilter cannot be set, because people have paid by the values it "
            "was made with: make a new PersonalFilter"
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name} of a PersonalFilter cannot be deleted")

    def __repr__(self) -> str:
        return f"PersonalFilter(budget={self.budget!r}, sigma={self.sigma!r})"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "a PersonalFilter holds what each person has used, which is secret: it cannot be "
            "copied or pickled; run all steps in one process"
        )


class _Used:
    """Hide the squared norms that each person has used. No public attribute returns them."""

    __slots__ = ("pay",)

    def __init__(self, most: int, people: int) -> None:
        used = np.zeros(people, np.int64)
        lock = threading.Lock()
        owner = _process[0], os.getpid()  # a fork outside Python changes only the process id

        def refuse_a_child() -> None:
            if owner != (_process[0], os.getpid()):
                raise RuntimeError(
                    "this PersonalFilter was made in another process, and this process is a fork "
                    "of it: each would spend the same budgets. Run all steps in the process that "
                    "made the filter, and send it the vectors"
                )

        entry_size = 1 << 20  # absolute value of a number in a vector

        def pay(rows: NDArray[Any], noise: Callable[[], NDArray[np.int64]]) -> NDArray[np.int64]:
            """Charge everyone who can pay, and return ``noise()`` plus the sum of their rows."""
            nonlocal used
            refuse_a_child()  # first: in a child, a thread that is gone may hold the lock
            with lock:
                result = noise()
                own = rows.copy()  # the caller may write to the original meanwhile
                # A number out of range never pays: an error would depend on private data.
                fits = np.all((own <= entry_size) & (own >= -entry_size), axis=1)
                numbers = own.astype(np.int64, copy=False)
                numbers *= fits[:, None]
                cost = np.einsum("ij,ij->i", numbers, numbers)
                paid = fits & (cost <= most - used)
                numbers *= paid[:, None]
                result = result + numbers.sum(axis=0, dtype=np.int64)
                refuse_a_child()
                used = used + cost * paid  # last: an earlier failure costs nothing
                return result

        self.pay = pay

    def __repr__(self) -> str:
        return "secret"
