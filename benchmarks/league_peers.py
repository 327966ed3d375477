"""Ask one library the questions of the league: it runs in an environment of that library.

    python benchmarks/league_peers.py riskcal < questions.json > answers.json

Each answer has a process of its own, 60 seconds of CPU time with its imports, and 12 GiB. An answer
is a list of one number (an upper bound, or an estimate), or of a lower and an upper bound. A
library is asked for what its documentation offers, with its default settings, and with the finest
that end in the time.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

LIMIT = 60  # seconds of CPU time for one answer
MEMORY = 12 << 30

Question = dict[str, Any]
Ask = Callable[[Question, bool], "list[float] | None"]


def mechanism(q: Question, prefix: str = "") -> str:
    """The expression of a mechanism, as the checker reads it, or Neyman with its prefix."""
    texts = {
        "sampled": "Gaussian({}).subsample(rate={})",
        "gaussian": "Gaussian({})",
        "laplace": "Laplace({})",
        "discrete gaussian": "DiscreteGaussian({})",
        "discrete laplace": "DiscreteLaplace({})",
        "response": "RandomizedResponse({}, {})",
        "allocation": "Gaussian({}).random_allocation({}, times={})",
    }
    return " + ".join(
        f"{prefix}{texts[kind].format(*numbers)} * {n}" for kind, *numbers, n in q["parts"]
    )


def neyman(q: Question, best: bool) -> list[float] | None:
    """Neyman's answer: the certified ends, which have no other settings."""
    if best:
        return None
    import neyman as ny

    f = eval(mechanism(q, "ny."), {"ny": ny}).tradeoff()
    bound = f.gdp() if q["ask"] == "mu" else getattr(f, q["ask"])(q["at"])
    return [bound.lower, bound.upper]


def _pld(q: Question, step: float) -> Any:
    """The distribution of the privacy loss, by dp-accounting, which others build on."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    given = {"value_discretization_interval": step}
    total = None
    for kind, *numbers, count in q["parts"]:
        match kind, numbers:
            case "sampled", (sigma, rate):
                one = pld.from_gaussian_mechanism(sigma, sampling_prob=rate, **given)
            case "gaussian", (sigma,):
                one = pld.from_gaussian_mechanism(sigma, **given)
            case "laplace", (scale,):
                one = pld.from_laplace_mechanism(scale, **given)
            case "discrete gaussian", (sigma,):
                one = pld.from_discrete_gaussian_mechanism(sigma, **given)
            case "discrete laplace", (scale,):
                one = pld.from_discrete_laplace_mechanism(1 / scale, **given)
            case "response", (epsilon, k):
                one = pld.from_randomized_response(k / (k - 1 + math.exp(epsilon)), k, **given)
            case _:
                return None
        many = one.self_compose(count) if count > 1 else one
        total = many if total is None else total.compose(many)
    return total


def dp_accounting(q: Question, best: bool) -> list[float] | None:
    if q["ask"] != "epsilon" or (loss := _pld(q, 1e-5 if best else 1e-4)) is None:
        return None
    return [loss.get_epsilon_for_delta(q["at"])]


def _sampled(q: Question) -> tuple[float, float, int] | None:
    """The noise, the rate, and the steps, if the question is about one training run."""
    part, *more = q["parts"]
    if more or part[0] not in ("sampled", "gaussian"):
        return None
    return (part[1], part[2], part[3]) if part[0] == "sampled" else (part[1], 1.0, part[2])


def riskcal(q: Question, best: bool) -> list[float] | None:
    if q["ask"] != "power" or q["parts"][0][0] == "allocation":
        return None
    if run := _sampled(q):
        from riskcal.calibration.dpsgd import get_beta_for_dpsgd  # pyright: ignore[reportMissingImports]

        grid = {"grid_step": 1e-5} if best else {}
        return [1 - float(get_beta_for_dpsgd(*run, alpha=q["at"], **grid))]
    from riskcal.analysis import get_beta_from_pld  # pyright: ignore[reportMissingImports]

    return [1 - float(get_beta_from_pld(_pld(q, 1e-5 if best else 1e-4), alpha=q["at"]))]


def gdpnum(q: Question, best: bool) -> list[float] | None:
    if q["ask"] != "mu" or not (run := _sampled(q)):
        return None
    from gdpnum.dpsgd import get_mu_and_regret_for_dpsgd  # pyright: ignore[reportMissingImports]

    return [float(get_mu_and_regret_for_dpsgd(*run, **({"grid_step": 1e-5} if best else {}))[0])]


def pld_accounting(q: Question, best: bool) -> list[float] | None:
    if q["ask"] != "epsilon" or q["parts"][0][0] != "allocation":
        return None
    from PLD_accounting import gaussian_allocation_epsilon_range  # pyright: ignore[reportMissingImports]

    ((_, sigma, steps, times, epochs),) = q["parts"]
    low, high = gaussian_allocation_epsilon_range(
        delta=q["at"], sigma=sigma, num_steps=steps, num_selected=times, num_epochs=epochs,
        **({"epsilon_accuracy": 0.01} if best else {}),
    )  # fmt: skip
    return [float(low), float(high)]


def prv_accountant(q: Question, best: bool) -> list[float] | None:
    import prv_accountant as prv  # pyright: ignore[reportMissingImports]

    if q["ask"] != "epsilon":
        return None
    losses, counts = [], []
    for kind, *numbers, count in q["parts"]:
        if kind not in ("sampled", "gaussian", "laplace"):
            return None
        one: Any = {
            "sampled": lambda s, r: prv.PoissonSubsampledGaussianMechanism(r, s),
            "gaussian": prv.GaussianMechanism,
            "laplace": lambda b: prv.LaplaceMechanism(mu=1 / b),
        }[kind]
        losses.append(one(*numbers))
        counts.append(count)
    run = prv.PRVAccountant(
        losses, eps_error=0.01 if best else 0.1, delta_error=q["at"] / 1000,
        max_self_compositions=counts,
    )  # fmt: skip
    low, _, high = run.compute_epsilon(q["at"], counts)
    return [float(low), float(high)]


def autodp(q: Question, best: bool) -> list[float] | None:
    if q["ask"] != "epsilon" or best or not (run := _sampled(q)):
        return None
    from autodp import rdp_acct, rdp_bank  # pyright: ignore[reportMissingImports]

    sigma, rate, steps = run
    account = rdp_acct.anaRDPacct()

    def gaussian(order: float) -> float:
        return rdp_bank.RDP_gaussian({"sigma": sigma}, order)

    if rate == 1:
        account.compose_mechanism(gaussian, coeff=steps)
    else:
        account.compose_poisson_subsampled_mechanisms(gaussian, rate, coeff=steps)
    return [float(account.get_eps(q["at"]))]


def jax_privacy(q: Question, best: bool) -> list[float] | None:
    if q["ask"] != "epsilon" or not (run := _sampled(q)):
        return None
    import dp_accounting as dp
    from jax_privacy.accounting import accountants  # pyright: ignore[reportMissingImports]

    sigma, rate, steps = run
    config = accountants.PldAccountantConfig if best else accountants.RdpAccountantConfig
    event = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(sigma))
    account = config().create_accountant().compose(event, steps)
    return [float(account.get_epsilon(q["at"]))]


def opacus(q: Question, best: bool) -> list[float] | None:
    if q["ask"] != "epsilon" or best or not (run := _sampled(q)):
        return None
    from opacus.accountants import PRVAccountant  # pyright: ignore[reportMissingImports]

    account = PRVAccountant()  # its default is "prv"
    account.history = [run]
    return [float(account.get_epsilon(q["at"]))]


def opendp(q: Question, best: bool) -> list[float] | None:
    if q["ask"] != "epsilon" or best:
        return None
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    kinds = {part[0] for part in q["parts"]}
    if kinds == {"discrete gaussian"}:
        make = dp.m.make_gaussian
    elif kinds == {"discrete laplace"}:
        make = dp.m.make_laplace
    else:
        return None
    several = [make(*space, scale=scale) for _, scale, count in q["parts"] for _ in range(count)]
    if sum(count for *_, count in q["parts"]) > 2000:
        raise ValueError("more than 2,000 measurements, one by one")
    both = dp.c.make_composition(several)
    if make is dp.m.make_laplace:
        return [float(both.map(1))]
    return [float(dp.c.make_zCDP_to_approxDP(both).map(1).epsilon(q["at"]))]


PEERS: dict[str, Ask] = {
    "neyman": neyman,
    "dp-accounting": dp_accounting,
    "jax-privacy": jax_privacy,
    "opacus": opacus,
    "prv-accountant": prv_accountant,
    "autodp": autodp,
    "opendp": opendp,
    "riskcal": riskcal,
    "gdpnum": gdpnum,
    "PLD_accounting": pld_accounting,
}


def answered(ask: Callable[[], list[float] | None]) -> dict[str, Any] | None:
    """One answer in its own process, with its CPU seconds, or why there is none."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 1))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        start = time.process_time()
        result: dict[str, Any] | None
        try:
            numbers = ask()
            result = None if numbers is None else {"answer": numbers}
        except BaseException as error:
            result = {"failed": f"{type(error).__name__}: {error}"[:100]}
        if result is not None:
            result["cpu"] = round(time.process_time() - start, 3)
        os.write(write, json.dumps(result).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"failed": "60 s of CPU time or 12 GiB", "cpu": LIMIT}


def main(name: str) -> None:
    """Print the answers of a library to the questions on standard input."""
    ask, answers = PEERS[name], list[Any]()
    for q in json.load(sys.stdin):
        default = answered(lambda q=q: ask(q, False))
        best = answered(lambda q=q: ask(q, True))
        answers.append([default, best or default])
    json.dump({"version": version(name), "answers": answers}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
