"""Training of a network: the steps, the charge, and the folder are those of `ny.train`."""

import json
import os
import signal
import subprocess
import sys
import traceback
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import neyman as ny
from neyman.analysis.training.checkpoint import CHECKPOINT
from neyman.analysis.training.network import SCHEMA
from neyman.analysis.training.result import Trained
from neyman.ledger.records import BudgetRefused, ChargedError, LedgerError

pytestmark = pytest.mark.needs("release")
GENERATOR = np.random.default_rng(0)
X = torch.from_numpy(GENERATOR.uniform(-1, 1, (60, 3)))
Y = torch.from_numpy(GENERATOR.uniform(-1, 1, (60, 1)))
QUIET = {"mechanism": ny.DPSGD(60, 60, 0.003, 4, "fixed"), "clip": 8}
"""All rows in each batch, no row clipped, and little noise."""
CLOSE = (
    0.01  # the noise of a mean is 0.003 * 2 * 8 / 60 = 8e-4, and of eight steps 2e-3 with momentum
)


def linear():
    torch.manual_seed(1)
    return torch.nn.Linear(3, 1).double()


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.5, momentum=0.5)


def books(tmp_path, relation="add-remove", currency="renyi:8", **more):
    ledger = ny.Ledger(tmp_path / "ledger.db")
    terms = {"currency": currency, "cap": 10**6, **more}
    ledger.create("toy@1", protects="person", neighboring=relation, **terms)
    return ledger


def call(tmp_path, ledger, model=None, loss=None, data=None, out="out", **change):
    terms = {
        "mechanism": ny.DPSGD(60, 12, 4, 2),
        "clip": 1,
        "optimizer": sgd,
        "dataset": "toy@1",
        "microbatch": 16,
    }
    return ny.torch.train(
        linear() if model is None else model,
        torch.nn.MSELoss() if loss is None else loss,
        (X, Y) if data is None else data,
        ledger=ledger,
        out=tmp_path / out,
        **{**terms, **change},
    )


def quiet(tmp_path, **change):
    """A run without noise to speak of, from a new ledger."""
    tmp_path.mkdir(exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ledger = books(tmp_path, "replace-one", "zcdp")
        return call(tmp_path, ledger, **{**QUIET, **change})


def descent(steps, start, sizes, batch=60):
    """Gradient descent with momentum 1/2 on the squared error, in NumPy."""
    x = np.c_[X.numpy(), np.ones(60)]
    w, speed = start.copy(), 0.0
    for step in range(steps):
        gradient = 2 * x.T @ (x @ w - Y.numpy()[:, 0]) / batch
        speed = 0.5 * speed + gradient
        w = w - sizes[step] * speed
    return w


def weights(model):
    return np.r_[model.weight.detach().numpy()[0], model.bias.detach().numpy()]


# What a run is.


@pytest.mark.parametrize("microbatch", [1, 7, 64])
def test_without_noise_to_speak_of_it_is_gradient_descent(tmp_path, microbatch):
    """Against a loop in NumPy with momentum and a schedule that halves the step size."""
    model = linear()
    start = weights(model)
    trained = quiet(
        tmp_path,
        model=model,
        microbatch=microbatch,
        scheduler=lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5),
    )
    expected = descent(4, start, [0.5, 0.5, 0.25, 0.25])
    assert np.abs(weights(model) - expected).max() < CLOSE
    assert np.array_equal(trained.state["weight"], model.weight.detach().numpy())
    assert np.array_equal(
        trained.parameters, np.r_[trained.state["bias"], *trained.state["weight"]]
    )
    assert trained.problems() == []
    assumed = [text for text in trained.receipt["conditions"] if "microbatch of" in text]
    assert len(assumed) == (microbatch > 1)


class Rows(Dataset):
    """A map-style dataset of tuples, each with a tensor and a number."""

    def __len__(self):
        return 60

    def __getitem__(self, row):
        return X[row], [float(Y[row, 0])]


def test_a_dataset_of_rows_trains_as_its_tensors_do(tmp_path):
    models = [linear() for _ in range(3)]
    example = torch.zeros(3).double(), torch.zeros(1).double()
    quiet(tmp_path / "a", model=models[0])
    quiet(tmp_path / "b", model=models[1], data=TensorDataset(X, Y))
    quiet(tmp_path / "c", model=models[2], data=Rows(), example=example)
    for model in models[1:]:
        assert np.abs(weights(model) - weights(models[0])).max() < CLOSE


@pytest.mark.parametrize("sampling", ["poisson", "allocated", "k-of-t", "fixed", "shuffled"])
def test_the_noise_is_that_of_the_relation_and_the_divisor_is_declared(tmp_path, sampling):
    """A loss of 0: the spread of 20,000 parameters after plain steps; alarm below 1e-6."""
    mechanism = ny.DPSGD(10, 5, 3, 1, sampling)
    paid, size = {}, 20_000
    if sampling in ("allocated", "k-of-t"):
        paid = {"currency": "pure", "delta_cap": "1e-4"}
    ledger = books(tmp_path, mechanism.neighboring, **paid)
    model = torch.nn.Embedding(size, 1)
    torch.nn.init.zeros_(model.weight)
    trained = call(
        tmp_path,
        ledger,
        model,
        lambda output, target: output.sum() * 0,
        (torch.zeros(10, dtype=torch.int64), torch.zeros(10)),
        mechanism=mechanism,
        clip=Fraction(7, 2),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=2),
        grid=1 << 12,
        delta="1e-5" if paid else 0,
    )
    expected = 2 * mechanism.noise(3.5) / 5 * mechanism.steps**0.5
    share = np.mean(trained.parameters.astype(float) ** 2) / expected**2
    # Laurent and Massart: a chi-square over its degrees leaves this with chance 2 e^-15.
    assert abs(share - 1) < 2 * (15 / size) ** 0.5 + 2 * 15 / size
    assert trained.problems() == []


def test_the_number_of_rows_is_secret_and_an_empty_batch_has_noise(tmp_path):
    """Under add-remove 0 or 37 rows train alike, and nothing that is written has their number."""
    for rows in (0, 37):
        folder = tmp_path / str(rows)
        folder.mkdir()
        trained = call(folder, books(folder), data=(X[:rows], Y[:rows]))
        assert trained.receipt["steps"] == {"run": 10, "lost": 0}
        public = [trained.receipt[key] for key in ("terms", "steps", "unit", "conditions")]
        assert "37" not in json.dumps(public)
        assert np.abs(trained.parameters - weights(linear())[[3, 0, 1, 2]]).min() > 0


def test_rows_whose_gradient_is_not_finite_count_as_zero(tmp_path):
    """The rest trains as if their gradient were 0."""
    x = X.clone()
    x[3], x[4] = float("nan"), float("inf")
    model = linear()
    start = weights(model)
    quiet(tmp_path, model=model, data=(x, Y), mechanism=ny.DPSGD(60, 60, 0.003, 1, "fixed"))
    others = [row for row in range(60) if row not in (3, 4)]
    design = np.c_[X.numpy(), np.ones(60)][others]
    gradient = 2 * design.T @ (design @ start - Y.numpy()[others, 0]) / 60
    assert np.abs(weights(model) - (start - 0.5 * gradient)).max() < CLOSE


def test_the_settings_of_torch_are_those_of_before(tmp_path):
    """The receipt names those of the run, where it took place, and the type of the forward pass."""
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    settings = []

    def loss(output, target):
        settings.append((torch.are_deterministic_algorithms_enabled(), output.dtype))
        return functional.mse_loss(output.float(), target)

    try:
        model = linear().float()
        data = X.float(), Y.float()
        trained = call(tmp_path, books(tmp_path), model, loss, data, autocast=torch.bfloat16)
        assert torch.backends.cudnn.benchmark
        assert torch.are_deterministic_algorithms_enabled() == before[0]
    finally:
        torch.backends.cudnn.benchmark = before[1]
    assert set(settings) == {(True, torch.bfloat16)}
    assert trained.receipt["environments"] == [
        {
            "framework": f"torch {torch.__version__}",
            "device": "cpu",
            "dtype": "float32",
            "autocast": "bfloat16",
            "deterministic": True,
            "tf32": False,
            "benchmark": False,
        }
    ]
    assert f"Computed on cpu by torch {torch.__version__}" in trained.report


def test_numbers_of_16_bits_and_buffers_are_stored(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(0)).bfloat16()
    model.register_buffer("scale", torch.tensor([1.5]).bfloat16())
    data = X.bfloat16(), Y[:, 0].bfloat16()
    trained = call(tmp_path, books(tmp_path), model, data=data)
    assert set(trained.state) == {"0.weight", "0.bias", "scale"}
    other = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(0)).bfloat16()
    other.register_buffer("scale", torch.zeros(1).bfloat16())
    other.load_state_dict({k: torch.from_numpy(v) for k, v in trained.state.items()})
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True)
    )
    assert torch.equal(other.scale, model.scale)


def test_the_sum_of_gradients_is_the_same_in_any_order_and_in_parts():
    """In whole numbers, so to the last bit; with a network of two layers."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1))
    x, y = X.float(), Y.float()
    mechanism = ny.DPSGD(60, 12, 4, 2)
    gradient = ny.torch.NoisyGradient(model, torch.nn.MSELoss(), mechanism=mechanism, clip=1)
    total = gradient.gradients.sum((x, y))
    order = torch.from_numpy(GENERATOR.permutation(60))
    assert torch.equal(gradient.gradients.sum((x[order], y[order])), total)
    parts = sum(gradient.gradients.sum((x[i : i + 25], y[i : i + 25])) for i in (0, 25, 50))
    assert torch.equal(parts, total)


# A loop of one's own.


def test_a_loop_of_ones_own_moves_as_the_whole_run_does(tmp_path):
    model, sizes = linear(), [0.5] * 4
    start = weights(model)
    gradient = ny.torch.NoisyGradient(model, torch.nn.MSELoss(), microbatch=16, **QUIET)
    optimizer = sgd(model.parameters())
    for rows in QUIET["mechanism"].batches(60):
        for part in np.array_split(rows, 3):
            gradient.add(X[part], Y[part])
        gradient.set()
        optimizer.step()
    assert np.abs(weights(model) - descent(4, start, sizes)).max() < CLOSE
    gradient.add(X[:0], Y[:0])
    with pytest.raises(RuntimeError, match="all of them are over"):
        gradient.set()


def test_a_loop_of_ones_own_refuses_the_gradient_of_a_mean():
    model = linear()
    gradient = ny.torch.NoisyGradient(model, torch.nn.MSELoss(), **QUIET)
    with pytest.raises(RuntimeError, match="gradient of a mean over a batch"):
        functional.mse_loss(model(X), Y).backward()
    assert model.weight.grad is None or model.bias.grad is None
    with pytest.raises(RuntimeError, match="add the rows of a batch first"):
        gradient.set()
    gradient.close()
    functional.mse_loss(model(X), Y).backward()


# Bad input.


class Stream(IterableDataset):
    def __iter__(self):
        yield X[0], Y[0]


OTHER = linear()
REFUSED = {
    "a loader": ({"data": DataLoader(TensorDataset(X, Y), shuffle=True)}, "give its dataset"),
    "a stream": ({"data": Stream()}, "IterableDataset"),
    "a tensor": ({"data": X}, r"tuple of tensors such as \(x, y\)"),
    "arrays": ({"data": (X.numpy(), Y.numpy())}, "torch.from_numpy"),
    "no example": ({"data": Rows()}, "give a made-up row"),
    "lengths": ({"data": (X, Y[:9])}, "of one length"),
    "device": ({"data": (X.to("meta"), Y.to("meta"))}, "data is on meta and model on cpu"),
    "loss none": ({"loss": torch.nn.MSELoss(reduction="none")}, "reduction"),
    "loss of two": ({"loss": lambda a, b: torch.stack([a, b])}, "must return one number"),
    "loss fails": ({"data": (X[:, :2], Y)}, "model fails at layer"),
    "optimizer": ({"optimizer": 0.1}, "optimizer is a float"),
    "optimizer of others": ({"optimizer": torch.optim.SGD(OTHER.parameters())}, "of model.param"),
    "lbfgs": ({"optimizer": torch.optim.LBFGS}, "optimizer is a LBFGS"),
    "closure": ({"optimizer": lambda p: Closure(p, {})}, "cannot take, save, and load a step"),
    "scheduler": ({"scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau}, "ReduceLROnPl"),
    "mechanism": ({"mechanism": ny.Gaussian(1)}, "must be a ny.DPSGD"),
    "relation": ({"mechanism": ny.DPSGD(60, 12, 4, 2, "fixed")}, "registered under"),
    "grid": ({"grid": 8}, "grid"),
    "clip": ({"clip": 0}, "above 0"),
    "delta": ({"delta": "1e-5"}, "goes with a dataset in 'pure'"),
}


class Closure(torch.optim.Optimizer):
    def step(self, closure):
        raise AssertionError("never called")


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_before_the_charge(tmp_path, name):
    change, match = REFUSED[name]
    ledger = books(tmp_path)
    model = linear()
    start = weights(model)
    with pytest.raises((TypeError, ValueError), match=match):
        call(tmp_path, ledger, model, **change)
    assert ledger.account("toy@1").entries == 0
    assert np.array_equal(weights(model), start)
    functional.mse_loss(model(X), Y).backward()  # as before


def test_a_dry_run_leaves_the_optimizer_and_the_model_as_they_were(tmp_path):
    """Refused by the budget, after a step on a gradient of zeros with decay and momentum."""
    model = linear()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1, 10)
    before = [repr(x.state_dict()) for x in (model, optimizer, schedule)]
    ledger = books(tmp_path, cap="1/1000")
    with pytest.raises(BudgetRefused):
        call(tmp_path, ledger, model, optimizer=optimizer, scheduler=schedule)
    assert [repr(x.state_dict()) for x in (model, optimizer, schedule)] == before


class Secret(Rows):
    """A dataset that fails, changes its length, or returns another shape at its second step."""

    def __init__(self, kind):
        self.kind, self.asked = kind, 0

    def __len__(self):
        return 59 if self.kind == "length" and self.asked > 20 else 60

    def __getitem__(self, row):
        self.asked += 1
        if self.asked > 20 and self.kind == "error":
            raise OSError("row 2 holds secret 777")
        if self.asked > 20 and self.kind == "shape":
            return torch.full((777,), 1.0), [0.0]
        return super().__getitem__(row)


@pytest.mark.parametrize(
    ("kind", "match"),
    [
        ("error", "the dataset raised OSError, and the charge stands"),
        ("shape", "the dataset raised ValueError, and the charge stands"),
        ("length", "data changed its length"),
    ],
)
def test_an_error_of_a_dataset_is_not_shown(tmp_path, kind, match):
    """Its message may hold a row: neither the error nor what it leads back to has it."""
    ledger = books(tmp_path)
    example = torch.zeros(3).double(), torch.zeros(1).double()
    with pytest.raises(ChargedError, match=match) as caught:
        call(tmp_path, ledger, data=Secret(kind), example=example)
    assert caught.value.__context__ is caught.value.__cause__ is None
    assert "777" not in "".join(traceback.format_exception(caught.value))
    assert ledger.account("toy@1").entries == 1
    with pytest.warns(UserWarning, match="steps are charged and have no result"):
        trained = call(tmp_path, ledger, data=Rows(), example=example)
    assert trained.problems() == []


# Runs that stop.


def test_the_same_call_after_the_end_loads_the_result_at_no_charge(tmp_path):
    ledger = books(tmp_path)
    first = call(tmp_path, ledger)
    model = torch.nn.Linear(3, 1).double()
    again = call(tmp_path, ledger, model)
    assert np.array_equal(first.parameters, again.parameters)
    assert np.array_equal(weights(model)[[3, 0, 1, 2]], first.parameters)
    assert ledger.account("toy@1").entries == 1
    assert not (tmp_path / "out" / CHECKPOINT).exists()
    with pytest.raises(LedgerError, match="does not hold its result"):
        call(tmp_path, ledger, out="elsewhere")
    for change in ({"optimizer": torch.optim.Adam}, {"loss": torch.nn.L1Loss()}, {"clip": 2}):
        with pytest.raises(ValueError, match="which is no run"):
            call(tmp_path, ledger, **change)


class Stop(BaseException):
    """What a kill is: nothing in the code under test catches it."""


def test_a_run_that_goes_on_equals_an_unbroken_one(tmp_path):
    """Stopped between two checkpoints, by a model that is made anew with other parameters.

    Momentum, schedule, and parameters go on from the last checkpoint; two steps are lost.
    """
    mechanism = ny.DPSGD(60, 60, 0.003, 8, "fixed")
    asked = []

    def failing(output, target):
        asked.append(1)
        if len(asked) == 1 + 8 * 5 + 3:  # the dry run, five steps, and some of the sixth
            raise Stop
        return functional.mse_loss(output, target)

    def schedule(optimizer):
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))

    terms = {**QUIET, "mechanism": mechanism, "save_every": 2, "microbatch": 8}
    terms["scheduler"] = schedule
    model = linear()
    start = weights(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ledger = books(tmp_path, "replace-one", "zcdp")
        with pytest.raises(Stop):
            call(tmp_path, ledger, model, failing, **terms)
        model = torch.nn.Linear(3, 1).double()
        asked += [1] * 1000
        trained = call(tmp_path, ledger, model, failing, **terms)
    assert trained.receipt["steps"] == {"run": 6, "lost": 2}
    # Steps 5 and 6 are lost; the sizes of the six that ran go on in the schedule.
    expected = descent(6, start, [0.5 / (1 + step) for step in range(6)])
    assert np.abs(weights(model) - expected).max() < CLOSE
    assert ledger.account("toy@1").entries == 1
    assert trained.problems() == []


SCRIPT = """
import os, signal
import torch
import neyman as ny
from neyman.analysis.training import network
real, count = network.write, 0
def write(*arguments, **more):
    global count
    count += 1
    real(*arguments, **more)
    if count == 4:
        os.kill(os.getpid(), signal.SIGKILL)
network.write = write
ny.torch.train(torch.nn.Linear(3, 1).double(), torch.nn.MSELoss(),
    (torch.zeros(60, 3).double(), torch.zeros(60, 1).double()),
    mechanism=ny.DPSGD(60, 12, 4, 2), clip=1,
    optimizer=lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.5),
    ledger="ledger.db", dataset="toy@1", out="out", microbatch=16, save_every=1)
"""


def test_a_killed_process_is_charged_and_goes_on(tmp_path):
    """SIGKILL in a process of its own, with a checkpoint that the ledger has not counted yet."""
    ledger = books(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(Path(ny.__file__).parents[1])}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert ledger.account("toy@1").entries == 1
    head = json.loads((tmp_path / "out" / CHECKPOINT).read_bytes().split(b"\n")[0])
    assert head["schema"] == SCHEMA
    assert ledger.steps(1) == 2
    with pytest.warns(UserWarning, match="1 of 10 steps"):
        trained = call(tmp_path, ledger, save_every=1)
    assert trained.receipt["steps"] == {"run": 9, "lost": 1}
    assert trained.receipt["environments"][0]["device"] == "cpu"
    assert ledger.account("toy@1").entries == 1
    assert ledger.verify().problems == ()


def test_a_folder_of_other_terms_is_refused(tmp_path):
    ledger = books(tmp_path)

    def stop(output, target):
        if asked:  # after the dry run
            raise Stop
        asked.append(1)
        return functional.mse_loss(output, target)

    asked = []
    with pytest.raises(Stop):
        call(tmp_path, ledger, loss=stop)
    asked.clear()
    with pytest.raises(ValueError, match="a run of other terms"):
        call(tmp_path, ledger, loss=stop, clip=2)
    path = tmp_path / "out" / CHECKPOINT
    path.write_bytes(path.read_bytes()[:-1])
    asked.clear()
    with pytest.raises(ValueError, match="damaged"):
        call(tmp_path, ledger, loss=stop)


def test_a_result_is_checked_without_data_and_a_changed_file_is_refused(tmp_path):
    trained = call(tmp_path, books(tmp_path))
    assert Trained.load(trained.folder).problems() == []
    receipt = json.loads(json.dumps(trained.receipt))
    receipt["terms"]["noise"]["sigma_squared"] = "1"
    (trained.folder / "receipt.json").write_text(json.dumps(receipt))
    assert {p.split(":")[0] for p in Trained.load(trained.folder).problems()} == {"noise", "key"}
    path = trained.folder / "parameters.npz"
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ValueError, match="another hash"):
        Trained.load(trained.folder)


def test_examples_in_docstrings_print_what_they_show(tmp_path, monkeypatch):
    """Without torch tests/test_docs.py leaves them out."""
    import doctest

    monkeypatch.chdir(tmp_path)
    for thing in (ny.torch, ny.torch.NoisyGradient):
        for test in doctest.DocTestFinder(exclude_empty=True).find(thing, "ny", globs={}):
            assert doctest.DocTestRunner().run(test).failed == 0
