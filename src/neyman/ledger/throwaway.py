"""Provide a temporary ledger that ends with its process and guarantees nothing afterwards."""

from __future__ import annotations

import weakref
from fractions import Fraction

from neyman.ledger.ledger import Ledger
from neyman.ledger.records import Account
from neyman.ledger.validation import account_terms
from neyman.numerics.relation import Neighboring
from neyman.storage.private_folder import private_folder

NOTICE = (
    "THROWAWAY LEDGER: for trying things. The ledger vanishes with its process, and nothing limits"
    " what all sessions together reveal. Do not publish this."
)
"""Every output of a throwaway ledger has this notice."""


class Throwaway(Ledger):
    """Store a ledger in a private temporary folder, removed with the object or its process.

    Within one process, it refuses charges over the cap, like any ledger. The next process starts
    with the full cap again, so nothing is guaranteed across sessions.
    """

    throwaway = True

    def __init__(self, cap: object, *, currency: str = "zcdp", delta_cap: object = 0) -> None:
        # Refuses what `create` would refuse later.
        # same: 1, -> 2,: Only the currency and the caps of these terms are read.
        terms = account_terms("trial@1", "person", "replace-one", 1, currency, cap, delta_cap, ())
        self._terms = currency, Fraction(terms["cap"]), Fraction(terms["delta_cap"])
        folder = private_folder("throwaway")
        super().__init__(folder.path / "ledger.db")
        weakref.finalize(self, folder.remove)

    def __repr__(self) -> str:
        currency, cap, _ = self._terms
        return f"<Throwaway of {cap} in {currency}. {NOTICE}>"

    def register(
        self, dataset: str, *, protects: str, neighboring: Neighboring, rows: int, totals: str = ""
    ) -> Account:
        """Register a dataset with the ledger's cap. The same terms again change nothing."""
        currency, cap, delta_cap = self._terms
        return self.create(
            dataset,
            protects=protects,
            neighboring=neighboring,
            rows=rows,
            totals=totals,
            currency=currency,
            cap=cap,
            delta_cap=delta_cap,
        )


def throwaway(cap: object, *, currency: str = "zcdp", delta_cap: object = 0) -> Throwaway:
    """Make a temporary ledger for trying things. Nothing is guaranteed across sessions.

    Args:
        cap: the largest total charge of each dataset, in the currency.
        currency: "pure" (epsilon), "zcdp" (rho), "gdp" (mu squared), or "renyi:ORDER".
        delta_cap: the largest total delta of each dataset, in [0, 1).

    Returns:
        A `Ledger` that vanishes with its process. A `Session` registers its dataset in it. Each
        output that it pays for says that the ledger is a throwaway.

    Raises:
        ValueError, TypeError: a cap that no account can have.

    Examples:
        >>> import neyman as ny
        >>> print(ny.throwaway("1/10"))
        <Throwaway of 1/10 in zcdp. THROWAWAY LEDGER: for trying things. The ledger vanishes with
        its process, and nothing limits what all sessions together reveal. Do not publish this.>
    """
    return Throwaway(cap, currency=currency, delta_cap=delta_cap)
