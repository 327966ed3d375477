"""Describe federated learning: what each observer learns about a record or a client.

The observer determines which noise counts, and which sampling hides a record or client.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

from neyman.mechanisms.additive import Gaussian
from neyman.mechanisms.base import Mechanism, StandIn
from neyman.mechanisms.description import COUNT, POSITIVE, PROBABILITY, TRUTH, integer, rational
from neyman.numerics import check
from neyman.numerics.relation import Neighboring
from neyman.numerics.rounding import below

PROTECTS = ("record", "client")
AGAINST = ("server", "clients", "public")


@dataclass(frozen=True, kw_only=True)
class Federated(StandIn):
    """Train by federated learning: each client adds its own noise, and the server sums the updates.

    In each round, the server draws clients and sends them the model. Each drawn client trains on
    its records, adds normal noise, and returns its update. The server publishes the sum, or the
    mean with equal weights. `made_of` returns the composition whose curve is claimed.

    What each observer sees:

    - "server": every client's own update, and who takes part. With ``secure_aggregation``, the
      server sees only the sum of the updates, and still who takes part.
    - "clients": the model after each round, and what the ``colluding`` clients know, at least one.
      They trust the server. With ``secure_aggregation`` they also see who takes part.
    - "public": the model after each round, and what the ``colluding`` clients know. With
      ``secure_aggregation``, the colluding clients know who takes part.

    Noise: a client's own noise always counts. If the observer sees only the sum, the noise of
    h = max(1, least_participants - colluding) honest clients counts. Otherwise h = 1.

    - ``protects="record"``, under add-remove: neighbors differ by one record of one client. Each
      local step draws each record with ``record_rate``, sums the clipped gradients, adds noise, and
      updates the model. A round is
      ``Gaussian(sigma).subsample(rate=record_rate) * (local_steps - 1)``, plus one such step with
      noise sigma sqrt(h). Client sampling hides no record, because the client's other records can
      reveal that the client takes part.
    - ``protects="client"``, under replace-one: neighbors exchange all records of one client. The
      client clips its whole update into one ball, the same for all clients, and adds noise once. So
      ``records``, ``record_rate`` and ``local_steps`` change nothing. A round is
      ``Gaussian(sigma sqrt(h))``. If the observer does not see who takes part, a sample of
      ``clients * client_rate`` clients hides a client. The sample is drawn without replacement from
      all available clients, at least ``clients`` in each round. *Every* drawn client sends its
      update. Each round draws anew: a draw that leaves out clients at a cap on their rounds needs
      ``client_rate=1``.

    Not covered: anything that a client sends besides its update, unequal weights, local optimizers
    that scale the noise (such as Adam), integer encodings of the noise, participation that depends
    on the data, and other collusion between clients and server.

    Args:
        clients: number of clients, at least 1. With ``client_rate`` below 1, the smallest number of
            available clients in a draw: a draw that is repeated if clients do not answer is a draw
            from the answering clients.
        client_rate: share of the clients that a round draws. If the observer sees who takes part,
            only 1 is allowed. Then give as ``rounds`` the largest number of rounds of one client.
        records: number of records of a client, at least 1, if declared. The curve does not depend
            on it, but `batch` does.
        record_rate: probability that a local step draws a record, 0 or from 1e-300 to 1.
        sigma: standard deviation of one client's noise, above 0, as a multiple of a clip. For a
            record: the clipping norm R, the largest difference of the sum of the clipped gradients
            between neighbors. For a client: the diameter 2 R of the ball into which *every* client
            clips its update. A bound on the change of one client's update is not enough.
        rounds: number of rounds, at least 1.
        protects: "record" or "client".
        against: "server", "clients" or "public".
        local_steps: number of noisy steps of a client per round, at least 1. The client sends only
            the last.
        secure_aggregation: True if the server sees sums only. Then ``least_participants`` is
            required.
        least_participants: the smallest number of updates in a published sum. A round with fewer
            updates publishes nothing. Without this argument, only a client's own noise counts.
        colluding: number of clients that share all they know with the observer, from 0 to
            clients - 1. With clients - 1, all other clients do.

    Raises:
        ValueError: the observer sees more than the amplification assumes.

    Examples:
        >>> import neyman as ny
        >>> def hospitals(against):
        ...     return ny.Federated(
        ...         clients=10, records=140, record_rate=0.05, sigma=1, rounds=200,
        ...         protects="record", against=against, least_participants=8,
        ...     )
        >>> round(float(hospitals("server").tradeoff().epsilon(delta=1e-5)), 4)
        4.7659
        >>> round(float(hospitals("clients").tradeoff().epsilon(delta=1e-5)), 4)
        1.0902

    Source: [FE-1], [FE-2], [FE-3], [FE-4]; Zheng, Chen, Long and Su 2021 for the setting.
    """

    clients: int = field(metadata=COUNT)
    client_rate: float | Fraction = field(default=1, metadata=PROBABILITY)
    records: int | None = field(default=None, metadata=COUNT)
    record_rate: float | Fraction = field(default=1, metadata=PROBABILITY)
    OWN_STEPS = True

    sigma: float | Fraction = field(metadata=POSITIVE)
    rounds: int = field(metadata=COUNT)
    protects: str = "record"
    against: str = "server"
    local_steps: int = field(default=1, metadata=COUNT)
    secure_aggregation: bool = field(default=False, metadata=TRUTH)
    least_participants: int | None = field(default=None, metadata=COUNT)
    colluding: int = field(default=0, metadata=integer())

    def __post_init__(self) -> None:
        super().__post_init__()
        check.one_of("protects", self.protects, PROTECTS)
        check.one_of("against", self.against, AGAINST)
        if self.colluding >= self.clients:
            raise ValueError(
                f"colluding = {self.colluding} must be below clients = {self.clients}: the client "
                "that is protected does not collude"
            )
        self._check_participants()
        if self.client_rate != 1:
            self._check_hidden()
        self.made_of()

    def _check_participants(self) -> None:
        if self._round_clients() < 1 or self._round_clients().denominator != 1:
            raise ValueError(
                f"client_rate = {self.client_rate!r} must draw a whole number of the clients = "
                f"{self.clients}, at least 1: a round draws clients * client_rate of them; give a "
                "Fraction such as Fraction(1, 3)"
            )
        if self.least_participants is None and self.secure_aggregation:
            raise ValueError(
                "least_participants = None must be given with secure_aggregation=True: if clients "
                "drop out, the sum has less noise. Declare how many updates a sum has at least"
            )
        if self.least_participants is not None and self.least_participants > self._round_clients():
            raise ValueError(
                f"least_participants = {self.least_participants} must be at most "
                f"{self._round_clients()}, the clients that a round draws"
            )

    def _check_hidden(self) -> None:
        """Refuse client sampling that does not hide a client from the observer [FE-1, FE-4]."""
        asked = f"client_rate = {self.client_rate!r} amplifies nothing"
        instead = (
            "give client_rate=1, and as rounds= the most rounds in which one client takes part"
        )
        if self.protects == "record":
            raise ValueError(
                f"{asked} for protects = 'record': the client's other records show whether it "
                f"takes part; {instead}"
            )
        if self.against == "server":
            raise ValueError(
                f"{asked} against = 'server', which sees who takes part, also with secure "
                f"aggregation; {instead}"
            )
        if self.secure_aggregation and self._colluding_clients():
            raise ValueError(
                f"{asked} against = {self.against!r} with secure_aggregation=True and colluding = "
                f"{self._colluding_clients()}: its participants see who takes part and report it; "
                f"{instead}"
            )
        if self.least_participants != self._round_clients():
            raise ValueError(
                f"{asked} with least_participants = {self.least_participants!r}: if clients drop "
                "out, the noise and the sum show who took part. Give least_participants="
                f"{self._round_clients()}, if every client that is drawn answers; or {instead}"
            )

    @property
    def neighboring(self) -> Neighboring:
        """Return "add-remove" for a record, "replace-one" for a client."""
        return "add-remove" if self.protects == "record" else "replace-one"

    def subsample(
        self,
        rate: float | Fraction | None = None,
        *,
        size: int | None = None,
        population: int | None = None,
        neighboring: Neighboring | None = None,
    ) -> Mechanism:
        """Return this run on a random sample of all records, drawn before the run begins.

        Raises:
            ValueError: the run protects a client. Use ``client_rate`` instead.
        """
        if self.protects == "client":
            raise ValueError(
                "protects = 'client': a sample of clients hides nothing from an observer that "
                "sees who takes part; give client_rate=, which checks that"
            )
        return super().subsample(rate, size=size, population=population, neighboring=neighboring)

    @property
    def batch(self) -> Fraction:
        """Return the expected batch size of a client. The client divides its sums by it.

        Raises:
            ValueError: if ``records`` is not given.
        """
        if self.records is None:
            raise ValueError("records = None must be given: a batch is records * record_rate")
        return self.records * rational(self.record_rate)

    @property
    def honest(self) -> int:
        """Return h, the smallest number of honest clients whose noise counts [FE-2]."""
        if self.against == "server" and not self.secure_aggregation:
            return 1
        return max(1, (self.least_participants or 1) - self._colluding_clients())

    def made_of(self) -> Mechanism:
        """Return the composition whose curve is claimed [FE-1]."""
        last = Gaussian(self._total())
        if self.protects == "record":
            step = Gaussian(self.sigma).subsample(rate=self.record_rate)
            last = last.subsample(rate=self.record_rate)
            return (step * (self.local_steps - 1) + last) * self.rounds  # [FE-3]
        sampled, others = int(self._round_clients()), self.clients - self._colluding_clients()
        if self.client_rate == 1 or sampled >= others:
            return last * self.rounds
        return last.subsample(size=sampled, population=others) * self.rounds  # [FE-4]

    def _round_clients(self) -> Fraction:
        """Return the number of clients that a round draws."""
        return self.clients * rational(self.client_rate)

    def _colluding_clients(self) -> int:
        """Return the number of colluding clients. An observing client counts if it is not alone."""
        least = min(1, self.clients - 1) if self.against == "clients" else 0
        return max(self.colluding, least)

    def _total(self) -> float | Fraction:
        """Return sigma sqrt(h) for h = `honest`, rounded down: the noise that counts in a sum."""
        if self.honest == 1:
            return self.sigma
        sigma = rational(self.sigma)
        root = below(Fraction(math.isqrt(self.honest << 128), 1 << 64))
        return below(sigma * rational(root))
