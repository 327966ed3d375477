"""The training loop does what is accounted, and a run that stops is never drawn twice."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import traceback
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import neyman as ny
from neyman.analysis import Trained, grid_rows
from neyman.analysis.training import train as module
from neyman.analysis.training.checkpoint import CHECKPOINT, CheckpointError, State, load, save
from neyman.analysis.training.clipping import clipped_sum
from neyman.analysis.training.result import report
from neyman.analysis.training.terms import price
from neyman.ledger import BudgetRefused, ChargedError, LedgerError
from neyman.ledger.events import Writer
from neyman.mechanisms import square_root
from neyman.mechanisms.dp_sgd import RELATION, SAMPLINGS
from neyman.publishing import TrainingReceipt, create_key
from neyman.storage import lock
from random_laws import examples

pytestmark = pytest.mark.needs("release")
ROWS = np.random.default_rng(0).normal(size=(60, 3))


def gradient(parameters, rows):
    return parameters - ROWS[rows]


def books(tmp_path, relation="add-remove", currency="renyi:8", **more):
    ledger = ny.Ledger(tmp_path / "ledger.db")
    terms = {"currency": currency, "cap": 1000, **more}
    ledger.create("toy@1", protects="person", neighboring=relation, **terms)
    return ledger


def call(tmp_path, ledger, out="out", function=gradient, **change):
    terms = {
        "start": np.zeros(3),
        "rows": 60,
        "mechanism": ny.DPSGD(60, 12, 4, 2),
        "clip": 1,
        "step_size": 0.5,
        "dataset": "toy@1",
    }
    return ny.train(function, ledger=ledger, out=tmp_path / out, **{**terms, **change})


# Clipping.

floats = st.floats(allow_nan=True, allow_infinity=True, width=64)


@settings(max_examples=examples(600))
@given(
    arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=9), elements=floats),
    st.sampled_from([1e-300, 1e-3, 1.0, 7.5, 1e300]),
    st.sampled_from([64, 1000, 1 << 20, 1 << 24]),
)
def test_no_row_is_longer_than_the_grid_and_none_depends_on_the_others(values, clip, grid):
    rows = grid_rows(values, clip, grid)
    for i, row in enumerate(rows):
        assert sum(int(x) ** 2 for x in row) <= grid**2
        assert np.array_equal(grid_rows(values[i : i + 1].copy(), clip, grid)[0], row)
    backward = np.ascontiguousarray(values[::-1])
    assert np.array_equal(grid_rows(backward, clip, grid)[::-1], rows)


@pytest.mark.parametrize("size", [1, 2, 7, 650, 40_000])
def test_long_rows_end_at_the_clipping_norm_and_short_ones_are_only_rounded(size):
    generator = np.random.default_rng(size)
    values = generator.normal(size=(20, size)) / math.sqrt(size)
    grid = 1 << 20
    rows = grid_rows(values * 5, 2.0, grid) * (2.0 / grid)
    lengths = np.linalg.norm(values * 5, axis=1)
    expected = values * 5 * np.minimum(1, 2 / lengths)[:, None]
    assert np.linalg.norm(rows - expected, axis=1).max() < 2 * (5 + 0.4 * math.sqrt(size)) / grid
    assert np.linalg.norm(rows, axis=1).max() <= 2.0


def test_many_small_rounding_errors_do_not_make_a_row_too_long():
    grid, size = 64, 4096
    values = np.full((1, size), 0.6 / grid)
    assert int((grid_rows(values, 1.0, grid) ** 2).sum()) <= grid**2


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_sums_of_neighbors_differ_by_at_most_what_the_noise_is_for(relation):
    generator = np.random.default_rng(1)
    values = generator.normal(size=(30, 50)) * generator.exponential(size=(30, 1)) * 10
    values[3], values[4, 5] = 1e308, np.nan
    total = clipped_sum(values, 1.0, 1 << 20)
    for i in range(30):
        other = np.delete(values, i, axis=0)
        if relation == "replace-one":
            other = np.concatenate([other, -values[i : i + 1]])
        moved = sum(int(x) ** 2 for x in total - clipped_sum(other, 1.0, 1 << 20))
        assert moved <= (1 if relation == "add-remove" else 4) * (1 << 40)
    parts = sum(clipped_sum(part, 1.0, 1 << 20) for part in np.array_split(values, 7))
    assert np.array_equal(parts, total)


# What a run is.


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_noise_is_that_of_the_relation_and_the_divisor_is_declared(tmp_path, sampling):
    """20,000 parameters, no gradient: the spread of one run; alarm below 1e-6."""
    mechanism = ny.DPSGD(10, 5, 3, 1, sampling)
    size, clip = 20_000, Fraction(7, 2)
    ledger, paid = books_for(tmp_path, mechanism)
    trained = call(
        tmp_path,
        ledger,
        **paid,
        function=lambda w, rows: np.zeros((rows.size, size)),
        start=np.zeros(size),
        rows=10,
        mechanism=mechanism,
        clip=clip,
        step_size=2,
        grid=1 << 12,
    )
    expected = 2 * mechanism.noise(3.5) / 5 * math.sqrt(mechanism.steps)
    share = np.mean(trained.parameters**2) / expected**2
    # Laurent and Massart: a chi-square over its degrees leaves this with chance 2 e^-15.
    assert abs(share - 1) < 2 * math.sqrt(15 / size) + 2 * 15 / size
    assert trained.problems() == []
    assert trained.receipt["neighboring"] == mechanism.neighboring


STRATEGY = square_root(12, band=4)
SPREAD = 2 * math.sqrt(15 / 20_000) + 2 * 15 / 20_000  # of a chi-square, as above


def correlated(tmp_path, ledger, function, sampling="cyclic"):
    """A run of 12 steps whose parameters are sums of noise alone, and their spread over sigma."""
    mechanism = ny.DPSGD(40, 10, 3, 3, sampling, strategy=STRATEGY)
    change = {"start": np.zeros(20_000), "rows": 40, "clip": 2, "step_size": 10, "grid": 1 << 12}
    trained = call(tmp_path, ledger, mechanism=mechanism, function=function, **change)
    return trained, np.mean(trained.parameters**2) / mechanism.noise(2) ** 2


def zero(parameters, rows):
    return np.zeros((rows.size, parameters.size))


@pytest.mark.parametrize("sampling", ["cyclic", "poisson"])
def test_correlated_noise_is_that_of_the_strategy(tmp_path, sampling):
    """The spread of 20,000 sums of 12 steps, by dense algebra; alarm below 1e-6."""
    relation = RELATION[sampling]
    trained, share = correlated(tmp_path, books(tmp_path, relation), zero, sampling)
    row = np.linalg.solve(STRATEGY.matrix().T / 65536, np.ones(12))
    assert abs(share / (row @ row) - 1) < SPREAD
    assert trained.problems() == []
    receipt = trained.receipt
    assert receipt["neighboring"] == relation
    sigma = {"cyclic": 2, "poisson": 1}[sampling] * 3 * (1 << 12) * 65536
    assert receipt["terms"]["noise"]["sigma_squared"] == str(sigma**2)
    assert trained.mechanism.strategy == STRATEGY
    assert "MM-1 to MM-10" in receipt["proof"]
    places = any("keeps its place" in condition for condition in receipt["conditions"])
    assert places == (sampling == "cyclic")
    assert "cancels a part of the noise" in trained.report


def test_a_killed_run_of_groups_goes_on_with_the_next_band(tmp_path):
    calls = []

    def failing(parameters, rows):
        calls.append(rows)
        if len(calls) > 30:
            raise Stop
        return zero(parameters, rows)

    ledger = books(tmp_path)
    with pytest.raises(Stop):
        correlated(tmp_path, ledger, failing, "poisson")
    begun = load(tmp_path / "out")[0].begun
    with pytest.warns(UserWarning, match=f"goes on with step {-(-begun // 4) * 4}"):
        trained, _ = correlated(tmp_path, ledger, zero, "poisson")
    assert trained.problems() == []


def test_a_killed_run_with_correlated_noise_goes_on_with_an_empty_memory(tmp_path):
    """The checkpoint holds parameters alone, and later noise cancels nothing of the noise before.

    The spread of the sums is that of two streams, by dense algebra; alarm below 1e-6.
    """
    calls = []

    def failing(parameters, rows):
        calls.append(rows)
        if len(calls) == 10 * 5 + 1:
            raise Stop
        return zero(parameters, rows)

    ledger = books(tmp_path, "replace-one")
    with pytest.raises(Stop):
        correlated(tmp_path, ledger, failing)
    checkpoint = (tmp_path / "out" / "checkpoint.bin").read_bytes()
    state, parameters = load(tmp_path / "out")
    assert (state.done, state.begun) == (5, 6)
    assert len(checkpoint.partition(b"\n")[2]) == 8 * 20_000
    with pytest.warns(UserWarning, match="goes on with step 6"):
        trained, share = correlated(tmp_path, ledger, zero)
    matrix = STRATEGY.matrix() / 65536
    parts = (matrix[:5, :5], matrix[6:, 6:])
    rows = np.concatenate([np.linalg.solve(part.T, np.ones(len(part))) for part in parts])
    assert abs(share / (rows @ rows) - 1) < SPREAD
    assert np.mean(parameters**2) < np.mean(trained.parameters**2)
    assert trained.receipt["steps"] == {"run": 11, "lost": 1}
    assert trained.problems() == []


def test_without_noise_to_speak_of_it_is_gradient_descent(tmp_path):
    ledger = books(tmp_path, "replace-one", "zcdp", cap=10**6)
    sizes = [0.5, 0.25, 0.5, 1.0, 0.125]
    mechanism = ny.DPSGD(60, 60, 0.01, 5, "fixed")
    with pytest.warns(UserWarning, match="no amplification") as warned:
        trained = call(tmp_path, ledger, mechanism=mechanism, step_size=sizes, clip=50)
    assert warned[0].filename == __file__  # the line of the caller
    parameters = np.zeros(3)
    for size in sizes:
        parameters = parameters - size * (parameters - ROWS).mean(axis=0)
    assert np.abs(trained.parameters - parameters).max() < 0.2


def test_the_number_of_rows_is_secret_and_no_error(tmp_path):
    for rows in (0, 41, 60):
        folder = tmp_path / str(rows)
        folder.mkdir()
        trained = call(folder, books(folder), rows=rows)
        text = json.dumps(trained.receipt) + trained.report
        assert '"rows": 1' in text
        assert "41" not in json.dumps(trained.receipt["steps"])
        assert trained.receipt["steps"] == {"run": 10, "lost": 0}
        assert trained.receipt["terms"]["divisor"] == 12


def test_the_charge_counts_the_sampling(tmp_path):
    mechanism = ny.DPSGD(60, 12, 4, 2)
    ledger = books(tmp_path)
    entry = call(tmp_path, ledger).receipt["ledger"]
    assert float(Fraction(entry["charged"])) == mechanism.tradeoff().renyi(8).upper
    pure, delta = price(mechanism, "pure", Fraction(1, 10**5))
    assert float(pure) >= mechanism.tradeoff().epsilon(1e-5).lower
    assert delta == Fraction(1, 10**5)
    with pytest.raises(ValueError, match="delta = 0 must be between 0 and 1"):
        price(mechanism, "pure", Fraction(0))
    with pytest.warns(UserWarning, match="no amplification"):
        assert price(mechanism, "zcdp", Fraction(0))[0] == mechanism.rho() > 3 * pure**2 / 8


def test_an_account_that_cannot_pay_for_allocated_batches_is_refused_with_advice(tmp_path):
    with pytest.raises(ValueError, match="register the dataset in 'pure'"):
        call(tmp_path, books(tmp_path), mechanism=ny.DPSGD(60, 12, 4, 2, "allocated"))


def test_a_pure_account_pays_with_its_delta(tmp_path):
    ledger = books(tmp_path, currency="pure", delta_cap="1e-4")
    trained = call(tmp_path, ledger, delta="1e-5")
    assert ledger.account("toy@1").spent_delta == Fraction(1, 10**5)
    assert trained.problems() == []
    with pytest.raises(ValueError, match="goes with a dataset in 'pure'"):
        call(tmp_path, books_at(tmp_path / "b"), "other", delta="1e-5")


def books_at(folder):
    folder.mkdir()
    return books(folder)


def test_the_result_is_checked_without_data(tmp_path):
    trained = call(tmp_path, books(tmp_path))
    assert Trained.load(trained.folder).problems() == []
    assert "at most" in trained.report
    changes = {
        "guarantee": lambda r: r["guarantee"]["power"][0].update(upper=0.001),
        "noise": lambda r: r["terms"]["noise"].update(sigma_squared="1"),
        "divisor": lambda r: r["terms"].update(divisor=13),
        "ledger": lambda r: r["ledger"].update(charged="0"),
        "steps": lambda r: r["steps"].update(run=9),
        "key": lambda r: r["terms"].update(name="other"),
    }
    for name, change in changes.items():
        receipt = json.loads(json.dumps(trained.receipt))
        change(receipt)
        (trained.folder / "receipt.json").write_text(json.dumps(receipt))
        problems = Trained.load(trained.folder).problems()
        assert any(p.startswith(name) for p in problems), name
    (trained.folder / "receipt.json").write_text(json.dumps({**trained.receipt, "schema": "n/9"}))
    with pytest.raises(CheckpointError, match=r"format 'n/9', written by neyman .*was changed"):
        Trained.load(trained.folder)
    (trained.folder / "receipt.json").write_text(json.dumps(trained.receipt))
    (trained.folder / "parameters.npy").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"another hash|can be read"):
        Trained.load(trained.folder)


def test_bounds_of_another_version_pass_where_they_meet_ours(tmp_path):
    trained = call(tmp_path, books(tmp_path))
    for low, high in ((1 - 1e-9, 1 - 1e-9), (1 - 1e-3, 1 + 1e-3)):
        receipt = json.loads(json.dumps(trained.receipt))
        for bound in (*receipt["guarantee"]["epsilon"], *receipt["guarantee"]["power"]):
            bound.update(lower=bound["lower"] * low, upper=bound["upper"] * high)
        (trained.folder / "receipt.json").write_text(json.dumps(receipt))
        assert Trained.load(trained.folder).problems() == []


# Bad input.


def test_a_gradient_that_mixes_rows_is_refused(tmp_path):
    def normalized(parameters, rows):
        x = ROWS[rows]
        return parameters - (x - x.mean(axis=0))

    def divided(parameters, rows):
        return gradient(parameters, rows) / rows.size

    for i, function in enumerate((normalized, divided)):
        ledger = books_at(tmp_path / str(i))
        with pytest.raises(module.MixedRows, match="depends on the other rows"):
            call(tmp_path / str(i), ledger, function=function, piece=60)
        assert ledger.account("toy@1").spent > 0
    ledger = books_at(tmp_path / "fine")
    trained = call(tmp_path / "fine", ledger, piece=2)
    assert any("is assumed" in text for text in trained.receipt["conditions"])
    alone = call(tmp_path / "fine", ledger, "alone")
    assert not any("is assumed" in text for text in alone.receipt["conditions"])


def test_a_gradient_gets_one_row_per_call_unless_more_are_asked_for(tmp_path):
    sizes = set()

    def function(parameters, rows):
        sizes.add(rows.size)
        parameters[:] = 7.0  # changes a copy
        return np.zeros((rows.size, 3))

    assert np.abs(call(tmp_path, books(tmp_path), function=function).parameters).max() < 7
    assert sizes == {1}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"mechanism": ny.Gaussian(1)}, "must be a ny.DPSGD"),
        ({"mechanism": ny.DPSGD(60, 12, 4, 2, "fixed")}, "sigma of one relation is not the sigma"),
        ({"mechanism": ny.DPSGD(60, 12, 4, 2, "shuffled"), "rows": 59}, "rows = 59 must be n = 60"),
        ({"clip": 0}, "clip = 0 must be above 0"),
        ({"mechanism": ny.DPSGD(60, 12, 1e12, 2)}, "take a coarser grid"),
        ({"mechanism": ny.DPSGD(60, 12, 4, 2, records_per_user=2)}, "user_sampling='examples'"),
        ({"grid": 3}, "grid = 3 must be between 16"),
        ({"grid": 1 << 30}, "must be between"),
        ({"step_size": [0.1]}, "step_size has 1 numbers; the run has 10 steps"),
        ({"step_size": -1}, "step_size = -1 must be above 0"),
        ({"start": [np.nan]}, "start must be finite"),
        ({"start": []}, "0 parameters train"),
        ({"mechanism": ny.DPSGD(60, 1, 4, 10**6)}, "60000000 steps; at most 1e"),
        ({"rows": -1}, "rows = -1"),
        ({"name": ""}, "name = ''"),
        ({"piece": 0}, "piece = 0"),
    ],
)
def test_bad_arguments_are_refused_before_any_charge(tmp_path, change, match):
    ledger = books(tmp_path)
    with pytest.raises((TypeError, ValueError), match=match):
        call(tmp_path, ledger, **change)
    assert ledger.account("toy@1").entries == 0


def test_a_machine_that_draws_no_noise_is_refused_before_any_charge(tmp_path, monkeypatch):
    def without_keys(size, real=os.urandom):
        return real(0 if size == 32 else size)

    ledger = books(tmp_path)
    monkeypatch.setattr(os, "urandom", without_keys)
    with pytest.raises(ValueError, match="key"):
        call(tmp_path, ledger)
    assert ledger.account("toy@1").entries == 0


def test_a_unit_of_several_rows_is_refused(tmp_path):
    with pytest.raises(ValueError, match="up to 5 rows per person"):
        call(tmp_path, books(tmp_path, rows=5))


def test_a_wrong_shape_is_refused_and_charged(tmp_path):
    ledger = books(tmp_path)
    wrong = {"sum": lambda w, rows: w, "complex": lambda w, rows: np.ones((rows.size, 3)) * 1j}
    for name, function in wrong.items():
        with pytest.raises(ChargedError, match="gradient returned"):
            call(tmp_path, ledger, name, function=function, name=name)
    assert ledger.account("toy@1").entries == 2


def test_a_refused_budget_leaves_nothing(tmp_path):
    ledger = books(tmp_path, cap="1/1000")
    with pytest.raises(BudgetRefused):
        call(tmp_path, ledger)
    assert load(tmp_path / "out") is None


# Runs that stop.


def test_the_same_call_after_the_end_returns_the_same_result_at_no_charge(tmp_path):
    ledger = books(tmp_path)
    first, again = call(tmp_path, ledger), call(tmp_path, ledger)
    assert np.array_equal(first.parameters, again.parameters)
    assert ledger.account("toy@1").entries == 1
    assert not (tmp_path / "out" / CHECKPOINT).exists()
    with pytest.raises(Exception, match="does not hold its result"):
        call(tmp_path, ledger, "elsewhere")
    other = call(tmp_path, ledger, "elsewhere", name="second")
    assert not np.array_equal(first.parameters, other.parameters)
    assert ledger.account("toy@1").entries == 2


class Stop(BaseException):
    """What a kill is: nothing in the code under test catches it."""


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("every", [1, 3])
def test_steps_over_all_processes_are_those_that_were_charged(
    tmp_path, monkeypatch, sampling, every
):
    """Killed at each write, and between noise and checkpoint: noise is drawn at most 10 times.

    And no batch of a step is drawn in two processes: steps of the noise are strictly rising.
    """
    mechanism = ny.DPSGD(60, 12, 4, 2, sampling)
    real, real_save = module.rounded_gaussian, module.save
    for stop in (1, 2, 3, 5, 11 // every + 1):
        folder = tmp_path / f"{stop}"
        folder.mkdir()
        ledger, paid = books_for(folder, mechanism)
        draws = saves = 0

        def noise(*arguments):
            nonlocal draws
            draws += arguments[1] > 1  # a run first draws one number, of which nothing is used
            return real(*arguments)

        def stopping(*arguments, stop=stop):
            nonlocal saves
            saves += 1
            if saves == stop:
                raise Stop
            real_save(*arguments)

        monkeypatch.setattr(module, "rounded_gaussian", noise)
        monkeypatch.setattr(module, "save", stopping)
        for _ in range(2):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    trained = call(folder, ledger, mechanism=mechanism, save_every=every, **paid)
                break
            except Stop:
                continue
        assert draws <= mechanism.steps == 10
        assert ledger.account("toy@1").entries == 1
        assert trained.receipt["steps"]["run"] <= draws
        assert sum(trained.receipt["steps"].values()) == 10
        assert trained.problems() == []


def books_for(folder, mechanism):
    """A ledger that can pay for a mechanism, and the arguments that it needs."""
    if mechanism.sampling in ("allocated", "k-of-t", "bins"):
        return books(folder, currency="pure", delta_cap="1e-4"), {"delta": "1e-5"}
    return books(folder, mechanism.neighboring), {}


def test_a_lost_step_is_counted_and_not_drawn_again(tmp_path, monkeypatch):
    ledger, real = books(tmp_path), module.save

    def stopping(folder, state, parameters):
        if state.done == 4:
            raise Stop
        real(folder, state, parameters)

    monkeypatch.setattr(module, "save", stopping)
    with pytest.raises(Stop):
        call(tmp_path, ledger)
    state, parameters = load(tmp_path / "out")
    assert (state.done, state.begun) == (3, 4)
    monkeypatch.setattr(module, "save", real)
    with pytest.warns(UserWarning, match="1 of 10 steps are charged and have no result") as warned:
        trained = call(tmp_path, ledger)
    assert warned[0].filename == __file__
    assert trained.receipt["steps"] == {"run": 9, "lost": 1}
    assert "1 step more was charged, without a result" in trained.report
    assert parameters.shape == (3,)


def test_a_broken_pass_is_over(tmp_path):
    for sampling, first in (("allocated", 5), ("k-of-t", 10), ("poisson", 1)):
        folder = tmp_path / sampling
        folder.mkdir()
        mechanism = ny.DPSGD(60, 12, 4, 2, sampling)
        ledger, paid = books_for(folder, mechanism)
        calls = []

        def failing(parameters, rows, calls=calls):
            calls.append(rows)
            if len(calls) > 15:
                raise Stop
            return gradient(parameters, rows)

        with pytest.raises(Stop):
            call(folder, ledger, function=failing, mechanism=mechanism, **paid)
        state, _ = load(folder / "out")
        with pytest.warns(UserWarning, match=f"goes on with step {max(first, state.begun)}"):
            call(folder, ledger, mechanism=mechanism, **paid)


SCRIPT = """
import os, signal, sys
import numpy as np
import neyman as ny
from neyman.analysis.training import train as module
point, real, count = sys.argv[1], module.save, 0
def save(folder, state, parameters):
    global count
    count += 1
    if point == "before" and count == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    real(folder, state, parameters)
    if point == "after" and count == 4:
        os.kill(os.getpid(), signal.SIGKILL)
module.save = save
ny.train(lambda w, rows: np.zeros((len(rows), 2)), start=[0, 0], rows=60,
    mechanism=ny.DPSGD(60, 12, 4, 2), clip=1, step_size=1, ledger="ledger.db",
    dataset="toy@1", out="out")
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")
@pytest.mark.parametrize(("point", "lost"), [("before", 1), ("after", 1)])
def test_a_killed_process_is_charged_and_goes_on(tmp_path, point, lost):
    ledger = books(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(Path(ny.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, point], cwd=tmp_path, env=environment, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert ledger.account("toy@1").entries == 1
    zero = {"function": lambda w, rows: np.zeros((rows.size, 2)), "start": [0, 0], "step_size": 1}
    with pytest.warns(UserWarning, match="1 of 10 steps"):
        trained = call(tmp_path, ledger, **zero)
    assert trained.receipt["steps"] == {"run": 10 - lost, "lost": lost}
    assert ledger.account("toy@1").entries == 1


def test_a_run_without_its_folder_is_refused_and_a_second_charge_is_asked_for(tmp_path):
    ledger = books(tmp_path)

    def failing(parameters, rows):
        raise ArithmeticError("of the user")

    with pytest.raises(ChargedError, match=r"ArithmeticError.*goes on"):
        call(tmp_path, ledger, function=failing)
    with pytest.raises(Exception, match="unfinished"):
        call(tmp_path, ledger, "elsewhere")
    call(tmp_path, ledger, "elsewhere", charge_again=True)
    assert ledger.account("toy@1").entries == 2


@pytest.mark.parametrize("kind", [ValueError, LedgerError, CheckpointError, OSError, ChargedError])
@pytest.mark.parametrize("where", ["call", "array"])
def test_an_error_of_a_gradient_is_not_shown(tmp_path, kind, where):
    ledger = books(tmp_path)

    class Later:
        def __array__(self, dtype=None, copy=None):
            raise kind("row 2 holds secret 777")

    def failing(parameters, rows):
        if where == "array":
            return Later()
        raise kind("row 2 holds secret 777")

    with pytest.raises(ChargedError, match=f"raised {kind.__name__}, and the charge st") as caught:
        call(tmp_path, ledger, function=failing)
    assert caught.value.__context__ is caught.value.__cause__ is None
    assert "777" not in "".join(traceback.format_exception(caught.value))


def test_checkpoints_of_other_terms_other_ledgers_or_with_damage_are_refused(tmp_path):
    ledger = books(tmp_path)
    with pytest.raises(Stop):
        call(tmp_path, ledger, function=stop)
    for change in ({"clip": 2}, {"start": np.zeros(4)}):
        with pytest.raises(CheckpointError, match="a run of other terms"):
            call(tmp_path, ledger, **change)
    other = ny.throwaway(5, currency="renyi:8")
    other.register("toy@1", protects="person", neighboring="add-remove", rows=1)
    with pytest.raises(Exception, match=r"(?i)no entry|entry 1"):
        call(tmp_path, other)
    path = tmp_path / "out" / CHECKPOINT
    content = path.read_bytes()
    kinds = [
        (b'"begun": 1', b'"begun": -9'),
        (b'"begun": 1', b'"begun": 1.5'),
        (b'"lost": 0', b'"lost": "0"'),
    ]
    heads = [content.replace(old, new) for old, new in kinds]
    for damage in (content[:-1], *heads, b"", b"{}\n", b"[" * 10**5 + b"\n"):
        path.write_bytes(damage)
        with pytest.raises(CheckpointError, match="damaged"):
            call(tmp_path, ledger)
    other_format = content.replace(b"neyman-training-checkpoint/1", b"neyman-training-checkpoint/9")
    path.write_bytes(other_format)
    with pytest.raises(CheckpointError, match=r"checkpoint/9', and .*was changed"):
        call(tmp_path, ledger)
    assert path.read_bytes() == other_format
    path.unlink()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match=r"holds notes\.txt"):
        call(tmp_path, ledger)


def stop(parameters, rows):
    raise Stop


def stopped_at(tmp_path, step, ledger):
    """A run whose process ends in its gradient of a step; the steps before it are done."""
    steps = []

    def failing(parameters, rows):
        state, _ = load(tmp_path / "out")
        steps.append(state.begun)
        if state.begun > step:
            raise Stop
        return gradient(parameters, rows)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Stop):
            call(tmp_path, ledger, function=failing)
    assert load(tmp_path / "out")[0].begun == step + 1 == steps[-1]


@pytest.fixture(params=["sqlite", "postgres"])
def any_books(request, tmp_path):
    """A ledger in a file, and one on a server."""
    if request.param == "sqlite":
        return books(tmp_path)
    server = request.getfixturevalue("postgres")
    ledger = ny.Ledger(server.url("steps_" + os.urandom(4).hex()))
    terms = {"currency": "renyi:8", "cap": 1000}
    ledger.create("toy@1", protects="person", neighboring="add-remove", **terms)
    return ledger


@pytest.mark.parametrize("how", ["copy", "renamed", "in place", "hard link"])
def test_an_older_copy_of_a_folder_draws_no_step_again(tmp_path, any_books, how):
    out, copy = tmp_path / "out", tmp_path / "copy"
    stopped_at(tmp_path, 3, any_books)
    shutil.copytree(out, copy, copy_function=os.link if how == "hard link" else shutil.copy2)
    stopped_at(tmp_path, 6, any_books)
    name = "out"
    if how == "copy":
        name = "copy"
    elif how == "renamed":
        out.rename(tmp_path / "gone")
        copy.rename(out)
    else:
        older = (copy / CHECKPOINT).read_bytes()
        if how == "hard link":
            os.replace(copy / CHECKPOINT, out / CHECKPOINT)
        else:
            with open(out / CHECKPOINT, "r+b") as file:
                file.write(older)
                file.truncate()
    batches = []

    def watched(parameters, rows):
        batches.append(rows)
        return gradient(parameters, rows)

    with pytest.raises(LedgerError, match="holds step 4 of a run that has begun step 7"):
        call(tmp_path, any_books, name, function=watched)
    assert not batches
    assert any_books.verify().problems == ()
    call(tmp_path, any_books, "new", charge_again=True)
    assert any_books.verify().problems == ()


def test_a_folder_that_is_a_link_to_another_disk_is_followed(tmp_path, any_books):
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "out").symlink_to(disk)
    stopped_at(tmp_path, 3, any_books)
    with pytest.warns(UserWarning, match="1 of 10 steps"):
        call(tmp_path, any_books, "disk")
    assert (tmp_path / "out").is_symlink()
    assert call(tmp_path, any_books).problems() == []


def test_one_of_two_equal_copies_goes_on_and_the_other_is_refused(tmp_path, any_books):
    stopped_at(tmp_path, 3, any_books)
    shutil.copytree(tmp_path / "out", tmp_path / "moved")
    with pytest.warns(UserWarning, match="1 of 10 steps"):
        trained = call(tmp_path, any_books, "moved")
    assert trained.receipt["steps"] == {"run": 9, "lost": 1}
    assert any_books.verify().problems == ()
    with pytest.raises(LedgerError, match="does not hold its result"):
        call(tmp_path, any_books)


def test_a_copy_that_draws_at_the_same_time_is_found_out_at_its_next_step(tmp_path):
    ledger = books(tmp_path)
    calls = []

    def beside(parameters, rows):
        calls.append(rows)
        if len(calls) == 1:
            (entry,) = ledger.entries("toy@1")
            ledger.count_steps(entry, 1, 2)
        return gradient(parameters, rows)

    with pytest.raises(LedgerError, match="another process has begun steps"):
        call(tmp_path, ledger, function=beside)
    assert load(tmp_path / "out")[0].begun == 2 == ledger.steps(1)


def test_a_publication_that_fails_leaves_the_count(tmp_path, monkeypatch):
    ledger, real = books(tmp_path), Writer.finish
    stopped_at(tmp_path, 3, ledger)
    shutil.copytree(tmp_path / "out", tmp_path / "copy")

    def killed(*arguments, **more):
        raise Stop

    monkeypatch.setattr(Writer, "finish", killed)
    with pytest.warns(UserWarning, match="1 of 10 steps"), pytest.raises(Stop):
        call(tmp_path, ledger)
    monkeypatch.setattr(Writer, "finish", real)
    assert ledger.steps(1) == 10
    with pytest.raises(LedgerError, match="begun step 10"):
        call(tmp_path, ledger, "copy")
    assert call(tmp_path, ledger).receipt["steps"] == {"run": 9, "lost": 1}
    assert ledger.verify().problems == ()
    assert ledger.steps(1) is None


def test_nobody_else_can_read_a_run(tmp_path):
    ledger = books(tmp_path)
    before = os.umask(0)
    try:
        stopped_at(tmp_path, 3, ledger)
        half = [tmp_path / "out", *(tmp_path / "out").iterdir()]
        modes = [path.stat().st_mode & 0o777 for path in half]
        with pytest.warns(UserWarning, match="1 of 10 steps"):
            call(tmp_path, ledger)
    finally:
        os.umask(before)
    assert modes == [0o700, 0o600]
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()} == {0o600}


def test_a_checkpoint_holds_no_state_of_randomness(tmp_path):
    state, parameters = State("k", 1, 2, 3, 1), np.arange(6.0).reshape(2, 3)
    save(tmp_path, state, parameters)
    again, values = load(tmp_path)
    assert again == state
    assert np.array_equal(values, parameters)
    head = json.loads((tmp_path / CHECKPOINT).read_bytes().split(b"\n")[0])
    assert sorted(head) == ["begun", "done", "entry", "key", "lost", "schema", "sha256", "shape"]


def test_two_processes_do_not_run_in_one_folder(tmp_path):
    ledger = books(tmp_path)
    (tmp_path / "out").mkdir()
    handle = lock(tmp_path / "out")
    try:
        with pytest.raises(CheckpointError, match="in use by another process"):
            call(tmp_path, ledger)
    finally:
        os.close(handle)


def test_a_throwaway_ledger_is_named_in_the_report(tmp_path):
    ledger = ny.throwaway(5, currency="renyi:8")
    ledger.register("toy@1", protects="person", neighboring="add-remove", rows=1)
    trained = call(tmp_path, ledger)
    assert "THROWAWAY LEDGER" in trained.report
    assert trained.receipt["ledger"]["throwaway"] is True


def test_a_receipt_is_signed(tmp_path):
    create_key(tmp_path / "key")
    trained = call(tmp_path, books(tmp_path), sign=tmp_path / "key")
    assert (trained.folder / "receipt.sig").is_file()


def test_the_report_speaks_of_members_where_records_are_added_or_removed(tmp_path):
    receipt = call(tmp_path, books(tmp_path)).receipt
    added, replaced = (
        report(TrainingReceipt.read(receipt | {"neighboring": relation}))
        for relation in ("add-remove", "replace-one")
    )
    assert "wrongly flags a non-member 5% of the time" in added
    assert "wrongly confirms a false claim" in replaced
