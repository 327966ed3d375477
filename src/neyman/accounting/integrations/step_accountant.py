"""Compute the privacy guarantee of the DP-SGD steps that a training library reports."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Protocol

from neyman.curves.tradeoff.guarantees import perfect
from neyman.curves.tradeoff.safe_mu import USUAL_LEVELS
from neyman.curves.tradeoff.tradeoff import Tradeoff
from neyman.mechanisms.additive import Gaussian
from neyman.mechanisms.base import Mechanism
from neyman.mechanisms.full_disclosure import NonPrivate
from neyman.numerics import check
from neyman.numerics.bound import Bound

__all__ = ["StepAccountant", "StepHook", "check_model"]

FOREIGN = ("rdp", "prv", "gdp")
MIXING = ("BatchNorm", "SyncBatchNorm", "LazyBatchNorm")
Steps = tuple[tuple[float, float, int], ...]

SCHEMA = "neyman-steps/1"
DELTAS = (1e-5, 1e-6, 1e-9)  # deltas of a receipt; the repr shows the first
LEVELS = (0.001, 0.01, 0.05, 0.1)
MAX_KINDS_SHOWN = 3  # kinds of steps; the repr shows no more
CONDITIONS = (
    "The number of rows is public: neighboring datasets have equally many rows, and in one of them "
    "the gradient of one row is 0.",
    "Each person has at most one row.",
    "The dataset, the model, and the loss treat each row by itself: a mean with class weights or "
    "ignored classes does not. They and the settings were chosen without the data.",
    "Each step uses the batch that the loader returned last, with its rows in their order. What "
    "else the loop does, such as a schedule or an early end, depends on the number of steps, and "
    "not on the number or the sizes of the batches.",
    "In a batch of one size, the gradient that is computed for a row does not depend on the values "
    "or the order of the other rows.",
    "Random numbers of the library, such as those of dropout, are independent draws that no one "
    "knows.",
    "No one sees the batches, the sums without noise, or the times of the steps.",
)
FLOATS = (
    "{count} steps drew batches or noise, or added up gradients, in floating point, or had batches "
    "of unlike sizes. It is assumed that this reveals no more than real numbers do."
)


class StepAccountant:
    """Report Neyman's certified upper bounds through the interface of Opacus's accountants.

    A step adds Gaussian noise with the noise multiplier to a Poisson sample, under add-remove.
    Opacus does this if `neyman.accounting.integrations.opacus.check_batches` accepts its settings
    and the number of rows is public. All steps are one composition, even if the noise or the rate
    changes.

    Examples:
        >>> from neyman.accounting.integrations.step_accountant import StepAccountant
        >>> accountant = StepAccountant()
        >>> for _ in range(100):
        ...     accountant.step(noise_multiplier=1.0, sample_rate=0.01)
        >>> len(accountant), round(accountant.get_epsilon(delta=1e-5), 3)
        (100, 0.718)
        >>> accountant
        <StepAccountant of 100 steps (sigma 1, rate 0.01): epsilon 0.7181 at delta 1e-05, noise \
assumed exact>
        >>> print(accountant.summary(delta=1e-5))
        epsilon: 0.7181 at delta 1e-05
        mu: 0.1948 at every level from 0.0001 to 0.5
        power: 0.0002123 at level 0.0001
    """

    def __init__(self) -> None:
        self._history: list[tuple[float, float, int]] = []
        self._hooks: list[StepHook] = []
        self._unchecked = 0
        self._exact = 0  # number of steps with exact batches, sums, and noise

    @property
    def history(self) -> list[tuple[float, float, int]]:
        """Return a triple per run of equal steps, in order: noise multiplier, sampling rate, count.

        Opacus's search for a noise multiplier assigns a history, which needs no check of a loader.
        """
        return self._history

    @history.setter
    def history(self, history: list[tuple[float, float, int]]) -> None:
        self._history = history
        self._unchecked = self._exact = 0
        for hook in self._hooks:
            if hook.draws is not None:
                hook.draws.forget()

    def __repr__(self) -> str:
        kinds = _kinds(_steps(self.history))
        shown = f"{type(self).__name__} of {len(self):,} steps"
        if not kinds or len(kinds) > MAX_KINDS_SHOWN:
            return f"<{shown}>"
        each = " and ".join(
            f"{f'{count:,} of ' if len(kinds) > 1 else ''}sigma {sigma:g}, rate {rate:g}"
            for (sigma, rate), count in kinds.items()
        )
        try:
            epsilon = f"epsilon {Bound(0.0, self.get_epsilon(DELTAS[0])):.4g} at delta {DELTAS[0]}"
        except ValueError:
            epsilon = "no epsilon, see get_epsilon"
        return f"<{shown} ({each}): {epsilon}, noise {'' if self.exact else 'assumed '}exact>"

    @property
    def exact(self) -> bool:
        """Return True if the batch, the sum, and the noise of each step were exact."""
        return self._exact >= len(self)

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Count one step.

        Args:
            noise_multiplier: sigma divided by the clipping norm, at least 0. A multiplier of 0
                reveals everything.
            sample_rate: the probability that a record is in the batch, in [0, 1].
        """
        one = _check_step(noise_multiplier, sample_rate, 1)
        if self.history and tuple(self.history[-1][:2]) == one[:2]:
            self.history[-1] = (*one[:2], self.history[-1][2] + 1)
        else:
            self.history.append(one)

    def record(self, hook: StepHook, *, noise_multiplier: float) -> None:
        """Count one step that an optimizer reports through its hook."""
        rate = hook.sample_rate if hook.draws is None else hook.draws.rate
        self.step(noise_multiplier=noise_multiplier, sample_rate=rate)
        self._unchecked += hook.draws is None
        self._exact += hook.draws is not None and hook.draws.exact

    def privacy(self) -> Mechanism:
        """Return all steps so far as one mechanism.

        Raises:
            ValueError: as for `get_epsilon`.
        """
        self._refuse_unchecked()
        return _mechanism(_steps(self.history))

    def tradeoff(self) -> Tradeoff:
        """Return the trade-off curve of all steps so far.

        Raises:
            ValueError: as for `get_epsilon`.
        """
        self._refuse_unchecked()
        return _curve(_steps(self.history))

    def get_epsilon(self, delta: float, **unused: Any) -> float:
        """Return an upper bound on the smallest epsilon at delta, under the receipt's conditions.

        Args:
            delta: in (0, 1).
            unused: arguments of other accountants, such as ``alphas`` or ``eps_error``.

        Returns:
            The upper end, or inf if a step has no noise. The history does not change.

        Raises:
            ValueError: an optimizer reported steps with a loader that `check_batches` has not
                accepted, or a checked loader drew samples that no step accounts for.
        """
        self._refuse_unchecked()
        return _epsilon(_steps(self.history), check.probability("delta", delta))

    def summary(self, delta: float) -> str:
        """Return epsilon at delta, the safe mu, and the power at the lowest level of mu's range.

        Args:
            delta: in (0, 1).

        Returns:
            One line per number. Each number is a certified upper bound, rounded up.

        Raises:
            ValueError: as for `get_epsilon`.
        """
        epsilon = Bound(0.0, self.get_epsilon(delta))
        curve = _curve(_steps(self.history))
        low, high = USUAL_LEVELS
        mu = curve.gdp(levels=USUAL_LEVELS).mu
        return "\n".join(
            (
                f"epsilon: {epsilon:.4g} at delta {delta!r}",
                f"mu: {mu:.4g} at every level from {low!r} to {high!r}",
                f"power: {curve.power(low):.4g} at level {low!r}",
            )
        )

    def receipt(self) -> dict[str, Any]:
        """Return the steps, their guarantee, and the conditions, as JSON types.

        Except for the versions, equal steps have equal receipts. A receipt has no signature and is
        in no ledger. `problems` checks that the receipt's numbers follow from its steps, not that
        the steps took place.

        Raises:
            ValueError: as for `get_epsilon`.
        """
        self._refuse_unchecked()
        names = (name for name in ("neyman", "torch", "opacus") if find_spec(name))
        return {
            **_receipt(_steps(self.history), self._exact),
            "versions": {name: version(name) for name in names},
        }

    @staticmethod
    def problems(receipt: Mapping[str, Any]) -> list[str]:
        """Return each statement of a receipt that does not follow from its steps.

        Args:
            receipt: the result of `receipt`, possibly written to JSON and read again.

        Raises:
            KeyError, TypeError, ValueError: the receipt has another form.
        """
        steps = [(s["noise_multiplier"], s["sample_rate"], s["steps"]) for s in receipt["steps"]]
        own = _receipt(_steps(steps), check.integer("exact_steps", receipt["exact_steps"]))
        wrong = [key for key in own if key != "guarantee" and receipt[key] != own[key]]
        for key, points in own["guarantee"].items():
            for point, other in zip(points, receipt["guarantee"][key], strict=True):
                # Another version may return another interval for the same number.
                least, most = point["lower"], other["upper"]
                short = most is not None and (least is None or most < least)
                if short or point | {"lower": other["lower"], "upper": most} != other:
                    wrong.append(f"{key}: {dict(other)}")
        return wrong

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """Return the hook that Opacus calls at each step of its optimizer."""
        hook = StepHook(self, check.probability("sample_rate", sample_rate))
        self._hooks.append(hook)
        return hook

    def state_dict(self, destination: MutableMapping[str, Any] | None = None) -> Any:
        """Return the history and the name of this accountant, in ``destination`` if given.

        ``unchecked`` counts the steps and samples for which `get_epsilon` refuses, if any.
        ``exact`` counts the steps with exact noise.
        """
        state: MutableMapping[str, Any] = OrderedDict() if destination is None else destination
        state["history"] = list(self.history)
        state["mechanism"] = self.mechanism()
        if unchecked := self._unchecked + self._unaccounted_draws():
            state["unchecked"] = unchecked
        if self._exact:
            state["exact"] = self._exact
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state of this accountant, or of Opacus's accountants "rdp", "prv", or "gdp".

        All histories have one form: noise multiplier, sampling rate, and number of steps. Call
        `check_batches` again before the next step.

        Raises:
            ValueError: the state lacks its history or its mechanism, or has another mechanism.
        """
        for key in ("history", "mechanism"):
            if not state_dict or key not in state_dict:
                raise ValueError(
                    f"state_dict has no {key!r}; give what an accountant's state_dict() returned"
                )
        kind = state_dict["mechanism"]
        if kind != self.mechanism() and kind not in FOREIGN:
            known = ", ".join((self.mechanism(), *FOREIGN))
            raise ValueError(f"state_dict['mechanism'] = {kind!r} must be one of {known}")
        history = list(_steps(state_dict["history"]))
        unchecked = check.integer("unchecked", state_dict.get("unchecked", 0))
        exact = check.integer("exact", state_dict.get("exact", 0))
        self.history = history
        self._unchecked, self._exact = unchecked, min(exact, len(self))
        for hook in self._hooks:
            hook.draws = None

    def __len__(self) -> int:
        """Return the number of steps."""
        return sum(count for *_, count in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """Return "neyman", this accountant's name in Opacus."""
        return "neyman"

    def _unaccounted_draws(self) -> int:
        return sum(hook.draws.unaccounted for hook in self._hooks if hook.draws is not None)

    def _refuse_unchecked(self) -> None:
        if self._unchecked:
            raise ValueError(
                f"steps without a check of their loader: {self._unchecked}. Their noise and their "
                "sampling are not known. Call check_batches(loader, optimizer, sample_rate, "
                "module, loss) after make_private or load_checkpoint, and before the next step. "
                "accountant.history = [...] asks about any steps without a check"
            )
        if samples := self._unaccounted_draws():
            raise ValueError(
                f"samples of the loader that no step accounts for: {samples}. Draw one sample for "
                "each step, keep optimizer.step_hook, and look at data through another loader"
            )


class Draws(Protocol):
    """Count the samples that a loader draws. `check_batches` attaches this object to a hook."""

    rate: float  # the probability that a record is in a sample
    exact: bool  # samples, sums, and noise use whole numbers

    @property
    def unaccounted(self) -> int:
        """Return the number of samples that no step accounts for."""
        ...

    def use(self, optimizer: Any) -> float:
        """Use one sample for a step of the optimizer, or refuse the step. Return its sigma."""
        ...

    def forget(self) -> None:
        """Forget the samples that no step accounts for."""
        ...


class StepHook:
    """Count a step whenever Opacus's optimizer calls this hook."""

    def __init__(self, accountant: StepAccountant, sample_rate: float) -> None:
        self.accountant = accountant
        self.sample_rate = sample_rate
        self.draws: Draws | None = None

    def __call__(self, optimizer: Any) -> None:
        """Count one step.

        Raises:
            ValueError: the step adds up several Poisson samples. A record may be in more than one,
                so the sum may move by more than the clipping norm. `BatchMemoryManager` splits one
                sample, and counts as one step. Or the loader was checked, and the step does not use
                one of its samples, or a setting has changed since the check.
        """
        count = optimizer.accumulated_iterations
        if count != 1:
            raise ValueError(
                f"optimizer.accumulated_iterations = {count}: the step adds up {count} Poisson "
                "samples, and a record may be in several of them, so its clipped gradients may "
                "add up to more than the clipping norm. Step after each batch, or split one "
                "batch with BatchMemoryManager"
            )
        draws = self.draws
        sigma = optimizer.noise_multiplier if draws is None else draws.use(optimizer)
        self.accountant.record(self, noise_multiplier=sigma)


def check_model(model: Any) -> None:
    """Refuse a torch model in which one record's output depends on the other records of a batch.

    Args:
        model: a ``torch.nn.Module``.

    Raises:
        ValueError: the model has batch normalization or instance normalization that updates or
            uses statistics of a batch, or an embedding with ``max_norm``. In eval mode with running
            statistics, both treat each record by itself, and are accepted.
    """
    for name, layer in model.named_modules():
        if getattr(layer, "max_norm", None) is not None:
            raise ValueError(
                f"model layer {name or 'itself'!r} is a {type(layer).__name__} with max_norm: it "
                "shortens the weights of the entries that it looks up, without noise, so the "
                "weights show which entries occur. Use max_norm=None"
            )
        kinds = [kind.__name__ for kind in type(layer).__mro__]
        batch = any(kind.startswith(MIXING) or kind == "_BatchNorm" for kind in kinds)
        tracked = "_InstanceNorm" in kinds and getattr(layer, "track_running_stats", False)
        fixed = (
            not getattr(layer, "training", True)
            and getattr(layer, "running_mean", None) is not None
        )
        if (batch or tracked) and not fixed:
            raise ValueError(
                f"model layer {name or 'itself'!r} is a {type(layer).__name__}: it mixes the "
                "examples of a batch, so one record moves the gradients of all, and clipping "
                "bounds nothing. Use GroupNorm or LayerNorm, or fixed statistics: layer.eval()"
            )


def _check_step(sigma: float, rate: float, count: int) -> tuple[float, float, int]:
    return (
        check.non_negative("noise_multiplier", sigma),
        check.probability("sample_rate", rate),
        check.integer("steps", count),
    )


def _steps(history: Iterable[Any]) -> Steps:
    return tuple(_check_step(*step) for step in history)


@lru_cache(maxsize=64)
def _mechanism(steps: Steps) -> Mechanism:
    """Return the composition of the steps. Equal steps are one part, even if not adjacent."""
    total = Mechanism.nothing()
    for (sigma, rate), count in _kinds(steps).items():
        total = total + Gaussian(sigma).subsample(rate=rate) * count
    return total


def _kinds(steps: Steps) -> dict[tuple[float, float], int]:
    """Return the number of steps with each noise multiplier and rate."""
    kinds: dict[tuple[float, float], int] = {}
    for sigma, rate, count in steps:
        kinds[sigma, rate] = kinds.get((sigma, rate), 0) + count
    return kinds


def _receipt(steps: Steps, exact: int) -> dict[str, Any]:
    """Return the part of a receipt that follows from the steps. ``exact`` of them were exact."""
    curve = _curve(steps)
    count = sum(step[2] for step in steps)
    floats = (FLOATS.format(count=count - exact),) if exact < count else ()
    return {
        "schema": SCHEMA,
        "steps": [
            {"noise_multiplier": sigma, "sample_rate": rate, "steps": number}
            for sigma, rate, number in steps
        ],
        "exact_steps": min(exact, count),
        "neighboring": "add-remove",
        "guarantee": {
            "epsilon": [{"delta": d} | _ends(curve.epsilon(d)) for d in DELTAS],
            "power": [{"level": level} | _ends(curve.power(level)) for level in LEVELS],
        },
        "proof": "OS-1 and OS-2 of docs/certificates/training.md",
        "conditions": [*CONDITIONS, *floats],
    }


def _ends(bound: Bound) -> dict[str, float | None]:
    """Return both ends of a bound by name. An infinite end is None."""
    ends = {"lower": float(bound.lower), "upper": float(bound.upper)}
    return {name: end if end < math.inf else None for name, end in ends.items()}


def _epsilon(steps: Steps, delta: float) -> float:
    """Return an upper bound on epsilon. A step without noise reveals each record that it draws."""
    actual = _actual(steps)
    if not actual:
        return 0.0
    return _curve(actual).epsilon(delta).upper if all(step[0] for step in actual) else math.inf


def _curve(steps: Steps) -> Tradeoff:
    """Return the curve of all steps. With a step without noise, it is the curve of no privacy."""
    actual = _actual(steps)
    if not all(step[0] for step in actual):
        return NonPrivate().tradeoff()
    return _mechanism(actual).tradeoff() if actual else perfect()


def _actual(steps: Steps) -> Steps:
    return tuple(step for step in steps if step[1] and step[2])
