"""Training of a network: the steps, the charge, and the folder are those of `ny.train`."""

import hashlib
import json
import os
import signal
import traceback
import warnings
from dataclasses import fields, replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import neyman as ny
from neyman.analysis import Trained
from neyman.ledger import BudgetRefused, ChargedError, LedgerError
from neyman.torch import TrainingPlan

pytestmark = pytest.mark.needs("release")
CHECKPOINT = "checkpoint.bin"
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


def split(terms):
    """Return the plan of some terms, and the other terms."""
    names = {field.name for field in fields(TrainingPlan)}
    plan = TrainingPlan(**{k: x for k, x in terms.items() if k in names})
    return plan, {k: x for k, x in terms.items() if k not in names}


def call(tmp_path, ledger, model=None, loss=None, data=None, out="out", **change):
    terms = {
        "mechanism": ny.DPSGD(60, 12, 4, 2),
        "clip": 1,
        "optimizer": sgd,
        "dataset": "toy@1",
        "microbatch": 16,
    }
    plan, others = split({**terms, **change})
    return ny.torch.train(
        linear() if model is None else model,
        torch.nn.MSELoss() if loss is None else loss,
        (X, Y) if data is None else data,
        plan,
        ledger=ledger,
        out=tmp_path / out,
        **others,
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


def step(start, rows):
    """Gradient descent's first step on these rows alone."""
    x = np.c_[X.numpy(), np.ones(60)][rows]
    return start - 0.5 * 2 * x.T @ (x @ start - Y.numpy()[rows, 0]) / 60


def weights(model):
    return np.r_[model.weight.detach().numpy()[0], model.bias.detach().numpy()]


# What a run is.


@pytest.mark.parametrize("microbatch", [1, 7, None])
def test_without_noise_to_speak_of_it_is_gradient_descent(tmp_path, microbatch):
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
    assert trained.receipt["proof"] == "TR-1 to TR-9 of docs/certificates/training.md"
    assumed = [text for text in trained.receipt["conditions"] if "microbatch of" in text]
    assert len(assumed) == (microbatch != 1)
    assert trained.receipt["environments"][0]["microbatch"] == (microbatch or 64)


class Rows(Dataset):
    """A map-style dataset of tuples, each with a tensor and a number."""

    def __len__(self):
        return 60

    def __getitem__(self, row):
        return X[row], [float(Y[row, 0])]


EXAMPLE = {"example": (torch.zeros(3).double(), torch.zeros(1).double())}


def test_a_dataset_of_rows_trains_as_its_tensors_do(tmp_path):
    models = [linear() for _ in range(3)]
    quiet(tmp_path / "a", model=models[0])
    quiet(tmp_path / "b", model=models[1], data=TensorDataset(X, Y))
    quiet(tmp_path / "c", model=models[2], data=Rows(), **EXAMPLE)
    for model in models[1:]:
        assert np.abs(weights(model) - weights(models[0])).max() < CLOSE


class Stream(IterableDataset):
    def __iter__(self):
        yield X[0], Y[0]


class Dicts(Rows):
    def __getitem__(self, row):
        return {"pixels": X[row], "label": Y[row]}


class Named(torch.nn.Module):
    """A model that takes its inputs by name, and returns its loss, as those of Hugging Face do."""

    def __init__(self):
        super().__init__()
        self.layer = linear()

    def forward(self, pixels, label):
        return functional.mse_loss(self.layer(pixels), label)


def returned(output, row):
    """Return the loss that a model returns."""
    assert row.keys() == {"pixels", "label"}
    return output


def padded(items):
    """Collate dicts into a tuple of tensors."""
    return tuple(torch.stack([item[name] for item in items]) for name in ("pixels", "label"))


NAMED = {"example": {"pixels": X[0] * 0, "label": Y[0] * 0}}


@pytest.mark.parametrize(
    ("change", "of"),
    [
        ({"data": {"pixels": X, "label": Y}}, "names"),
        ({"data": Dicts(), **NAMED}, "names"),
        ({"data": DataLoader(Dicts(), collate_fn=padded), **EXAMPLE}, "places"),
        ({"data": DataLoader(TensorDataset(X, Y), shuffle=True)}, "places"),
    ],
)
@pytest.mark.parametrize("microbatch", [1, None])
def test_rows_may_be_dicts_or_come_from_a_loader(tmp_path, change, of, microbatch):
    plain, model = linear(), Named() if of == "names" else linear()
    quiet(tmp_path / "a", model=plain)
    loss = returned if of == "names" else None
    quiet(tmp_path / "b", model=model, loss=loss, microbatch=microbatch, **change)
    layer = model.layer if of == "names" else model
    assert np.abs(weights(layer) - weights(plain)).max() < CLOSE


def test_a_callback_sees_each_step_and_no_value_that_a_row_left_in_the_model(tmp_path):
    x, model, losses = X.clone(), Rare(fails=False), {}
    x[3] = 1000

    def look(step, trained):
        left = [trained.frozen, trained.memory, *(p.grad for p in trained.parameters())]
        assert not any(part is not None and part.any() for part in left)
        losses[step] = functional.mse_loss(trained.layer(X[:9]), Y[:9]).item()

    quiet(tmp_path, model=model, data=(x, Y), microbatch=1, callback=look)
    assert [*losses] == [0, 1, 2, 3]
    assert len({*losses.values()}) == 4


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
    for rows in (0, 37):
        folder = tmp_path / str(rows)
        folder.mkdir()
        trained = call(folder, books(folder), data=(X[:rows], Y[:rows]))
        assert trained.receipt["steps"] == {"run": 10, "lost": 0}
        public = [trained.receipt[key] for key in ("terms", "steps", "unit", "conditions")]
        assert "37" not in json.dumps(public)
        assert np.abs(trained.parameters - weights(linear())[[3, 0, 1, 2]]).min() > 0


def test_rows_whose_gradient_is_not_finite_count_as_zero(tmp_path):
    x = X.clone()
    x[3], x[4] = float("nan"), float("inf")
    model = linear()
    start = weights(model)
    quiet(tmp_path, model=model, data=(x, Y), mechanism=ny.DPSGD(60, 60, 0.003, 1, "fixed"))
    others = [row for row in range(60) if row not in (3, 4)]
    assert np.abs(weights(model) - step(start, others)).max() < CLOSE


class Rare(torch.nn.Module):
    """A model that writes to itself, and then may raise an error, on row 3 alone."""

    def __init__(self, *, fails):
        super().__init__()
        self.layer, self.fails = linear(), fails
        self.frozen = torch.nn.Parameter(torch.zeros(1), requires_grad=False)
        self.register_buffer("memory", torch.zeros(1))

    def forward(self, x):
        if x.sum() > 100:
            for tensor in (self.layer.bias, self.frozen, self.memory):
                tensor.data.add_(x.sum())
            if self.fails:
                raise ValueError("row 3 holds secret 777")
        return self.layer(x)


@pytest.mark.parametrize("fails", [False, True])
def test_no_value_of_a_row_stops_a_run_or_is_in_its_result(tmp_path, fails):
    x, model = X.clone(), Rare(fails=fails)
    x[3] = 1000
    start = weights(model.layer)
    one = ny.DPSGD(60, 60, 0.003, 1, "fixed")
    trained = quiet(tmp_path, model=model, data=(x, Y), microbatch=1, mechanism=one)
    expected = step(start, np.arange(60) != 3)
    bound = 0.5 * QUIET["clip"] / 60 * (not fails)
    assert np.linalg.norm(weights(model.layer) - expected) < bound + 2 * CLOSE
    assert not any(trained.state[name].any() for name in ("frozen", "memory"))
    assert any(
        "had their values of before the run" in text for text in trained.receipt["conditions"]
    )
    assert trained.problems() == []


def _raise(error):
    def fail(*_, **__):
        raise error

    return fail


HARM = {
    "delete a buffer": lambda m, x: delattr(m, "memory"),
    "delete a parameter": lambda m, x: delattr(m.layer, "bias"),
    "delete a layer": lambda m, x: delattr(m, "layer"),
    "delete all": lambda m, x: vars(m).clear(),
    "replace all": lambda m, x: object.__setattr__(m, "__dict__", {}),
    "replace a parameter": lambda m, x: setattr(m.layer, "weight", torch.nn.Parameter(x[:1])),
    "replace a forward pass": lambda m, x: setattr(m, "forward", _raise(ValueError())),
    "replace a method": lambda m, x: setattr(m, "named_parameters", _raise(ValueError())),
    "a hook that fails": lambda m, x: m.layer.register_forward_hook(_raise(ValueError())),
    "a state hook": lambda m, x: m.register_state_dict_pre_hook(_raise(ValueError())),
    "a load hook": lambda m, x: m.register_load_state_dict_pre_hook(_raise(ValueError())),
    "resize a buffer": lambda m, x: m.tensors[2].resize_(9),
    "retype a buffer": lambda m, x: setattr(m.tensors[2], "data", torch.ones(5).half()),
    "resize a frozen parameter": lambda m, x: setattr(m.tensors[1], "data", x.flatten()),
    "resize a parameter": lambda m, x: setattr(m.tensors[0], "data", x.flatten()),
    "empty a parameter": lambda m, x: m.tensors[0].untyped_storage().resize_(0),
    "move a frozen parameter": lambda m, x: setattr(m.tensors[1], "grad", torch.ones(1)),
    "another class": lambda m, x: setattr(m.layer, "__class__", torch.nn.Identity),
    "no derivatives": lambda m, x: torch.set_grad_enabled(False),
    "another layer": lambda m, x: setattr(m.layer, "in_features", "many"),
    "memory": lambda m, x: _raise(MemoryError())(),
    "a GPU's memory": lambda m, x: _raise(torch.OutOfMemoryError())(),
    "an exit": lambda m, x: _raise(SystemExit())(),
    "an own end": lambda m, x: _raise(Stop())(),
}


class Harmful(torch.nn.Module):
    """A model that does something to itself on row 3 alone."""

    def __init__(self, harm):
        super().__init__()
        self.layer, self.harm = linear(), harm
        self.frozen = torch.nn.Parameter(torch.zeros(1), requires_grad=False)
        self.register_buffer("memory", torch.zeros(1))
        self.tensors = [self.layer.weight, self.frozen, self.memory]

    def forward(self, x):
        if x.sum() > 100:
            self.harm(self, x)
        return self.layer(x)


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("count", [1, 2])
def test_nothing_that_a_model_does_to_itself_on_a_row_stops_a_run(tmp_path, harm, count):
    x, model = X.clone(), Harmful(HARM[harm])
    x[3] = 1000
    start = weights(model.layer)
    mechanism = ny.DPSGD(60, 60, 0.003, count, "fixed")
    names = set(model.state_dict())
    trained = quiet(
        tmp_path,
        model=model,
        data=(x, Y),
        microbatch=1,
        mechanism=mechanism,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.5),
    )
    assert trained.problems() == []
    assert trained.receipt["steps"] == {"run": count, "lost": 0}
    assert set(trained.state) == names == set(model.state_dict())
    assert not any(x.any() for x in (trained.state["frozen"], model.frozen, model.memory))
    expected = start
    for _ in range(count):
        expected = step(expected, np.arange(60) != 3)
    bound = count * 0.5 * QUIET["clip"] / 60
    assert np.linalg.norm(weights(model.layer) - expected) < bound + 2 * CLOSE
    assert np.array_equal(weights(model.layer)[:3], trained.state["layer.weight"][0])


def test_an_interrupt_stops_a_run_that_goes_on_later(tmp_path):
    ledger, model = books(tmp_path), Harmful(_raise(KeyboardInterrupt()))
    x = X.clone()
    x[:] = 1000
    with pytest.raises(KeyboardInterrupt):
        call(tmp_path, ledger, model, data=(x, Y), microbatch=1)
    model = Harmful(_raise(ValueError()))
    with pytest.warns(UserWarning, match="charged and have no result"):
        assert call(tmp_path, ledger, model, data=(x, Y), microbatch=1).problems() == []


def test_the_settings_of_torch_are_those_of_before(tmp_path):
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    settings = set()

    def loss(output, target):
        settings.add((torch.are_deterministic_algorithms_enabled(), output.dtype))
        return functional.mse_loss(output.float(), target)

    try:
        model = linear().float()
        data = X.float(), Y.float()
        trained = call(tmp_path, books(tmp_path), model, loss, data, autocast="bfloat16")
        assert torch.backends.cudnn.benchmark
        assert torch.are_deterministic_algorithms_enabled() == before[0]
    finally:
        torch.backends.cudnn.benchmark = before[1]
    assert settings == {(True, torch.bfloat16)}
    assert trained.receipt["environments"] == [
        {
            "framework": f"torch {torch.__version__}",
            "device": "cpu",
            "dtype": "float32",
            "microbatch": 16,
            "compiled": False,
            "processes": 1,
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


def test_groups_have_clips_of_their_own_and_stand_in_the_terms(tmp_path):
    ledger = books(tmp_path)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)).double()
    more = {"groups": {"first": ["0"], "last": ["1"]}, "clip": {"first": 1, "last": "1"}}
    trained = call(tmp_path, ledger, model, **more)
    assert trained.receipt["terms"]["plan"]["clip"] == {"first": "1", "last": "1"}
    assert trained.plan.norm == Fraction(2**0.5)
    assert "clipped to norm 1.42 and" in trained.report
    assert trained.problems() == []
    with pytest.raises(ValueError, match="which is not a run"):
        call(tmp_path, ledger, model, **{**more, "clip": {"first": 1, "last": 2}})


def test_the_sum_of_gradients_is_the_same_in_any_order_and_in_parts():
    """In whole numbers, so to the last bit; with a network of two layers."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1))
    x, y = X.float(), Y.float()
    plan = TrainingPlan(ny.DPSGD(60, 12, 4, 2))
    gradient = ny.torch.NoisyGradient(model, torch.nn.MSELoss(), plan)
    total = gradient.gradients.sum((x, y))
    order = torch.from_numpy(GENERATOR.permutation(60))
    assert torch.equal(gradient.gradients.sum((x[order], y[order])), total)
    for i in (0, 25, 50):
        gradient.gradients.add((x[i : i + 25], y[i : i + 25]))
    assert torch.equal(gradient.gradients.take(), total)


# A loop of one's own.


def test_a_loop_of_ones_own_moves_as_the_whole_run_does(tmp_path):
    model, sizes = linear(), [0.5] * 4
    start = weights(model)
    plan = TrainingPlan(microbatch=16, **QUIET)
    gradient = ny.torch.NoisyGradient(model, torch.nn.MSELoss(), plan)
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
    with pytest.raises(ValueError, match="of one length"):
        gradient.add(X, Y[:9])
    with pytest.raises(RuntimeError, match="add the rows of a batch first"):
        gradient.set()  # an error begins a new sum


def test_a_loop_of_ones_own_refuses_the_gradient_of_a_mean():
    model = linear()
    gradient = ny.torch.NoisyGradient(model, torch.nn.MSELoss(), TrainingPlan(**QUIET))
    with pytest.raises(RuntimeError, match="gradient of a mean over a batch"):
        functional.mse_loss(model(X), Y).backward()
    assert model.weight.grad is None or model.bias.grad is None
    with pytest.raises(RuntimeError, match="add the rows of a batch first"):
        gradient.set()
    gradient.close()
    functional.mse_loss(model(X), Y).backward()


# Bad input.


class TensorRows(Rows):
    def __getitem__(self, row):
        return X[row], Y[row].repeat(2)


class Texts(Rows):
    def __getitem__(self, row):
        return "0.1 0.2 0.3", Y[row]


OTHER = linear()
REFUSED = {
    "a sampler": (
        {"data": DataLoader(Rows(), sampler=range(9)), **EXAMPLE},
        "data is a DataLoader with range and 0 workers; the mechanism draws",
    ),
    "a loader of a stream": ({"data": DataLoader(Stream())}, "give a"),
    "a name that rows lack": (
        {"data": Dicts(), "example": {"pixels": torch.zeros(3), "target": 0}},
        "a row as a dict without 'target'",
    ),
    "a stream": ({"data": Stream()}, "data is a Stream; give a tuple"),
    "a tensor": ({"data": X}, r"data is a Tensor; give a tuple of tensors \(x, y\)"),
    "arrays": ({"data": (X.numpy(), Y.numpy())}, "torch.from_numpy"),
    "no tensors": ({"data": ()}, "tuple or a dict of tensors"),
    "no example": ({"data": Rows()}, "give a made-up row"),
    "rows of dicts": ({"data": Dicts(), **EXAMPLE}, "a row as a dict, and example has no names"),
    "rows of a shape": (
        {"data": TensorRows(), **EXAMPLE},
        r"shapes \[\(3,\), \(2,\)\], and example has \[\(3,\), \(1,\)\]",
    ),
    "rows of text": ({"data": Texts(), **EXAMPLE}, "shapes .'str'"),
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
    "a short schedule": (
        {"scheduler": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=9)},
        "Tried to step",
    ),
    "mechanism": ({"mechanism": ny.Gaussian(1)}, "must be a ny.DPSGD"),
    "relation": ({"mechanism": ny.DPSGD(60, 12, 4, 2, "fixed")}, "registered under"),
    "grid": ({"grid": 8}, "grid"),
    "clip": ({"clip": 0}, "above 0"),
    "microbatch": ({"microbatch": "64"}, "microbatch"),
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


def by_user(users, x, y, records):
    """Return items of ``records`` rows per user, and the targets, -100 where a user has fewer."""
    order = users.argsort(stable=True)
    names, counts = torch.unique(users, return_counts=True)
    item = torch.arange(len(names)).repeat_interleave(counts)
    place = torch.arange(len(users)) - (counts.cumsum(0) - counts)[item]
    within = place < records
    items = x.new_zeros(len(names), records, *x.shape[1:])
    targets = torch.full((len(names), records), -100)
    items[item[within], place[within]] = x[order][within]
    targets[item[within], place[within]] = y[order][within]
    return items, targets


def user_loss(output, target):
    """Return the sum of the losses of a user's rows."""
    return functional.cross_entropy(output.flatten(0, 1), target.flatten(), reduction="sum")


USERS = {
    "single rows": (ny.DPSGD(60, 12, 8, 2, records_per_user=4), 4),
    "items of users": (ny.DPSGD(20, 4, 4, 2, records_per_user=4, user_sampling="users"), 4),
    "items of a dataset of items": (ny.DPSGD(20, 4, 4, 2, user_sampling="users"), 1),
}


@pytest.mark.parametrize("name", USERS)
def test_the_rows_of_a_ledger_fit_how_users_are_drawn_and_clipped(tmp_path, name):
    mechanism, rows = USERS[name]
    users, y = torch.arange(60) % 20, (Y[:, 0] > 0).long()
    paid = {"currency": "pure", "delta_cap": "1e-4"}
    ledger = books(tmp_path, rows=rows, **paid)
    x, target, loss = X, y, functional.cross_entropy
    if mechanism.user_sampling == "users":
        (x, target), loss = by_user(users, X, y, 4), user_loss
        assert (x.shape, (target >= 0).sum()) == ((20, 4, 3), 60)
    model = torch.nn.Linear(3, 2).double()
    terms = {"mechanism": mechanism, "delta": "1e-5"}
    trained = call(tmp_path, ledger, model, loss, (x, target), **terms)
    assert trained.problems() == []
    assert trained.receipt["unit"]["rows"] == rows
    words = "4 rows" if name == "single rows" else "one item with all data of one person"
    assert any(words in text for text in trained.receipt["conditions"])
    (entry,) = ledger.entries("toy@1")
    assert float(entry.charge) == mechanism.tradeoff().epsilon(1e-5).upper


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_of_a_ledger_that_the_mechanism_does_not_protect_are_refused(tmp_path, rows):
    mechanism = ny.DPSGD(60, 12, 4, 2, records_per_user=4 if rows == 1 else 1)
    ledger = books(tmp_path, rows=rows)
    with pytest.raises(ValueError, match=rf"records_per_user={rows}, or .*user_sampling='users'"):
        call(tmp_path, ledger, mechanism=mechanism)
    assert ledger.account("toy@1").entries == 0


def test_the_items_of_a_user_are_clipped_together(tmp_path):
    """Without noise to speak of, a step is that on the sums of each user's rows."""
    users, y = torch.arange(60) % 20, (Y[:, 0] > 0).long()
    model = torch.nn.Linear(3, 2).double()
    start = [p.detach().clone() for p in model.parameters()]
    items = by_user(users, X, y, 4)
    mechanism = ny.DPSGD(20, 20, 0.003, 1, "fixed", user_sampling="users")
    plain = torch.optim.SGD
    quiet(tmp_path, model=model, loss=user_loss, data=items, mechanism=mechanism, clip=9,
          optimizer=lambda p: plain(p, lr=1))  # fmt: skip
    for p, before in zip(model.parameters(), start, strict=True):
        p.data, moved = before.clone(), p.detach().clone()
        p.moved = moved
    functional.cross_entropy(model(X), y, reduction="sum").backward()
    for p in model.parameters():
        assert (p.detach() - p.grad / 20 - p.moved).abs().max() < 0.02  # five errors of the noise


def test_a_dry_run_leaves_the_optimizer_and_the_model_as_they_were(tmp_path):
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
    ledger = books(tmp_path)
    with pytest.raises(ChargedError, match=match) as caught:
        call(tmp_path, ledger, data=Secret(kind), **EXAMPLE)
    assert caught.value.__context__ is caught.value.__cause__ is None
    assert "777" not in "".join(traceback.format_exception(caught.value))
    assert ledger.account("toy@1").entries == 1
    with pytest.warns(UserWarning, match="steps are charged and have no result") as warned:
        trained = call(tmp_path, ledger, data=Rows(), **EXAMPLE)
    assert warned[0].filename == __file__  # the line of the caller
    assert trained.problems() == []


# The first use.


def reach(out, data=None, **change):
    """A call of the shortest form."""
    terms = {"epsilon": 2, "delta": "1e-4", "epochs": 2, "batch": 12, "out": out, **change}
    return ny.torch.train(linear(), torch.nn.MSELoss(), (X, Y) if data is None else data, **terms)


def test_a_run_of_its_own_reaches_epsilon_and_says_that_it_counts_itself_alone(tmp_path, capsys):
    trained = reach(tmp_path / "my model")
    assert capsys.readouterr().out.startswith("n = 60, the length of the data, is public. sigma = ")
    curve = trained.tradeoff()
    assert 1.99 < curve.epsilon(1e-4).upper <= 2
    words = "This counts one run. Other runs on these rows add to it and are not counted here"
    for text in (str(trained), trained.report, trained.receipt["ledger"]["note"]):
        assert words in text
    assert [p.partition(":")[0] for p in trained.problems()] == ["ledger"]
    assert any("The number of rows, 60, is public" in x for x in trained.receipt["conditions"])
    ledger = ny.Ledger(tmp_path / "my model.ledger.db")
    (paid,) = ledger.entries("my-model@1")
    assert (paid.charge <= 2, paid.delta, paid.state) == (True, Fraction("1e-4"), "released")
    assert np.array_equal(reach(tmp_path / "my model").parameters, trained.parameters)
    assert len(ledger.entries("my-model@1")) == 1


def test_a_second_run_beside_the_first_warns_with_the_sum(tmp_path):
    reach(tmp_path / "a")
    match = r"(?s)they reveal epsilon 5 at delta 0.0002 .*one ledger=.*ny\.select_best"
    with pytest.warns(UserWarning, match=match) as warned:
        reach(tmp_path / "b", epsilon=3)
    assert warned[0].filename == __file__
    with pytest.warns(UserWarning, match="epsilon 5"):
        reach(tmp_path / "a")  # loaded, and not charged again


def test_epsilon_with_the_ledger_of_a_steward_is_charged_there_alone(tmp_path):
    ledger = books(tmp_path)
    trained = reach(tmp_path / "out", ledger=ledger, dataset="toy@1")
    assert trained.problems() == []
    assert "counts one run" not in str(trained) + trained.report
    assert (ledger.account("toy@1").entries, [*tmp_path.glob("*.ledger.db")]) == (1, [])
    (tmp_path / "pure").mkdir()
    pure = books(tmp_path / "pure", currency="pure", delta_cap="1/10")
    reach(tmp_path / "pure/out", ledger=pure, dataset="toy@1")
    (paid,) = pure.entries("toy@1")
    assert (1.99 < paid.charge <= 2, paid.delta) == (True, Fraction("1e-4"))


class Unread(Rows):
    """A dataset that no one may read."""

    def __getitem__(self, row):
        raise AssertionError("read")


PLAN = TrainingPlan(ny.DPSGD(60, 12, 4, 2))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"plan": PLAN}, "plan has one: give plan= alone"),
        ({"delta": "1/60"}, r"below 1 / n = 0\.0166667: a run with a larger delta may publish a"),
        ({"delta": 0}, "must be above 0 and below 1 / n"),
        ({"epsilon": 0}, "epsilon = 0 must be above 0"),
        ({"epsilon": "1e-12", "delta": "1e-30"}, "no sigma reaches it"),
        ({"epsilon": None}, "plan is missing"),
        ({"batch": 61}, "batch = 61 must be at most n = 60"),
        ({"plan": PLAN, "epsilon": None, "epochs": None, "batch": None, "delta": 0}, "delta = 0"),
    ],
)
def test_the_shortest_form_is_refused_before_a_row_is_read(tmp_path, change, match):
    with pytest.raises(ValueError, match=match):
        reach(tmp_path / "out", Unread(), **EXAMPLE, **change)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    "plan",
    [PLAN, TrainingPlan(PLAN.mechanism, {"a": "1/3", "b": 2}, {"a": ["0"], "b": ("1",)}, 1 << 12)],
)
def test_a_plan_is_what_defines_the_sums_and_not_how_they_are_computed(plan):
    assert TrainingPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    same = replace(plan, microbatch=1, compiled=True, save_every=9)
    assert (same == plan, same.hash == plan.hash) == (True, True)
    for other in ({"grid": 1 << 13}, {"groups": "layers"}, {"autocast": "float16"}):
        assert replace(plan, **other).hash != plan.hash
    assert str(plan).startswith(
        "DPSGD(n=60, batch=12, sigma=4, epochs=2, sampling='poisson')\nclip"
    )


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
        with pytest.raises(ValueError, match="which is not a run"):
            call(tmp_path, ledger, **change)


class Stop(BaseException):
    """What a kill is: nothing in the code under test catches it."""


class Stopping(Rows):
    """A dataset whose process is killed after some rows."""

    def __init__(self, rows):
        self.left = rows

    def __getitem__(self, row):
        self.left -= 1
        if self.left < 0:
            raise Stop
        return super().__getitem__(row)


def test_a_run_that_goes_on_equals_an_unbroken_one(tmp_path):
    """Stopped between two checkpoints, by a model that is made anew with other parameters.

    Momentum, schedule, and parameters go on from the last checkpoint; two steps are lost.
    """
    mechanism = ny.DPSGD(60, 60, 0.003, 8, "fixed")

    def schedule(optimizer):
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))

    terms = {**QUIET, "mechanism": mechanism, "save_every": 2, "scheduler": schedule, **EXAMPLE}
    model = linear()
    start = weights(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ledger = books(tmp_path, "replace-one", "zcdp")
        with pytest.raises(Stop):
            call(tmp_path, ledger, model, data=Stopping(5 * 60 + 3), **terms)
        model = torch.nn.Linear(3, 1).double()
        trained = call(tmp_path, ledger, model, data=Rows(), **terms)
    assert trained.receipt["steps"] == {"run": 6, "lost": 2}
    # Steps 5 and 6 are lost; the sizes of the six that ran go on in the schedule.
    expected = descent(6, start, [0.5 / (1 + step) for step in range(6)])
    assert np.abs(weights(model) - expected).max() < CLOSE
    assert ledger.account("toy@1").entries == 1
    assert trained.problems() == []


def test_a_run_that_goes_on_has_the_microbatch_of_its_first_process(tmp_path, monkeypatch):
    """A microbatch follows from the memory of a machine, and the run may move to another one."""
    terms = {**QUIET, "microbatch": None, "save_every": 2, **EXAMPLE}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ledger = books(tmp_path, "replace-one", "zcdp")
        with monkeypatch.context() as patch:
            patch.setattr(os, "sysconf", lambda name: 64)  # 4 KiB
            with pytest.raises(Stop):
                call(tmp_path, ledger, data=Stopping(3 * 60), **terms)
        trained = call(tmp_path, ledger, data=Rows(), **terms)
        (tmp_path / "large").mkdir()
        other = call(tmp_path / "large", books(tmp_path / "large", "replace-one", "zcdp"), **terms)
    for run, rows in ((trained, 32), (other, 64)):
        assert [place["microbatch"] for place in run.receipt["environments"]] == [rows]
        assert any(f"a microbatch of {rows} examples" in x for x in run.receipt["conditions"])
    assert trained.receipt["key"] == other.receipt["key"]
    assert trained.problems() == []


def at_writes(patch, number, before=lambda: None, after=lambda: None):
    """Call something before or after a checkpoint takes the place of the last for this time."""
    real, writes = os.replace, []

    def replacing(source, target, **more):
        writes.extend([1] * str(target).endswith(CHECKPOINT))
        at = str(target).endswith(CHECKPOINT) and len(writes) == number
        _ = at and before()
        real(source, target, **more)
        _ = at and after()

    patch.setattr(os, "replace", replacing)


def test_steps_over_all_processes_are_those_that_were_charged(tmp_path, monkeypatch):
    for stop in (1, 2, 3, 5):
        folder, moves = tmp_path / str(stop), []
        folder.mkdir()
        ledger = books(folder)

        def counting(parameters, moves=moves):
            optimizer = sgd(parameters)
            optimizer.register_step_post_hook(lambda *_: moves.append(1))
            return optimizer

        with monkeypatch.context() as patch:
            at_writes(patch, stop, before=_raise(Stop))
            with pytest.raises(Stop):
                call(folder, ledger, save_every=3, optimizer=counting)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trained = call(folder, ledger, save_every=3, optimizer=counting)
        assert trained.receipt["steps"]["run"] <= len(moves) - 2 <= 10  # without two dry runs
        assert sum(trained.receipt["steps"].values()) == 10
        assert ledger.account("toy@1").entries == 1
        assert trained.problems() == []


def test_a_killed_process_is_charged_and_goes_on(tmp_path, monkeypatch):
    books(tmp_path).close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fork where other threads wait
        child = os.fork()
    if child == 0:
        at_writes(monkeypatch, 4, after=lambda: os.kill(os.getpid(), signal.SIGKILL))
        try:
            call(tmp_path, ny.Ledger(tmp_path / "ledger.db"), save_every=1)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    ledger = ny.Ledger(tmp_path / "ledger.db")
    assert ledger.account("toy@1").entries == 1
    head = json.loads((tmp_path / "out" / CHECKPOINT).read_bytes().split(b"\n")[0])
    assert (head["schema"], head["begun"], ledger.steps(1)) == ("neyman-network-checkpoint/1", 3, 2)
    with pytest.warns(UserWarning, match="1 of 10 steps"):
        trained = call(tmp_path, ledger, save_every=1)
    assert trained.receipt["steps"] == {"run": 9, "lost": 1}
    assert len(trained.receipt["environments"]) == 1
    assert ledger.account("toy@1").entries == 1
    assert ledger.verify().problems == ()


def test_a_folder_of_other_terms_is_refused(tmp_path):
    ledger = books(tmp_path)
    with pytest.raises(Stop):
        call(
            tmp_path, ledger, data=Stopping(1), **EXAMPLE
        )  # the first row is read before the charge
    with pytest.raises(ValueError, match="a run of other terms"):
        call(tmp_path, ledger, clip=2)
    path = tmp_path / "out" / CHECKPOINT
    line, _, content = path.read_bytes().partition(b"\n")
    head = json.loads(line) | {"schema": "neyman-training-checkpoint/1"}  # of ny.train
    path.write_bytes(json.dumps(head).encode() + b"\n" + content)
    with pytest.raises(ValueError, match="format 'neyman-training-checkpoint/1'"):
        call(tmp_path, ledger)
    path.write_bytes(line + b"\n" + content[:-1])
    with pytest.raises(ValueError, match="damaged"):
        call(tmp_path, ledger)
    head = json.loads(line) | {"environments": "x"}
    path.write_bytes(json.dumps(head).encode() + b"\n" + content)
    with pytest.raises(ValueError, match="damaged"):
        call(tmp_path, ledger)
    for other in (b"", b"1", b"\x80\x02K\x01.", content[: len(content) // 2]):
        head = json.loads(line) | {"sha256": hashlib.sha256(other).hexdigest()}
        path.write_bytes(json.dumps(head).encode() + b"\n" + other)
        with pytest.raises(ValueError, match="give the model that began it"):
            call(tmp_path, ledger)


def test_a_batch_that_one_sum_cannot_hold_is_refused_before_the_charge():
    loss = torch.nn.CrossEntropyLoss()
    plan = TrainingPlan(ny.DPSGD(n=9, batch=3, sigma=1, epochs=1))
    batch = ny.torch.NoisyGradient(linear(), loss, plan).gradients.most_rows // 2 + 1
    mechanism = ny.DPSGD(n=4 * batch, batch=batch, sigma=1, epochs=1)
    with pytest.raises(ValueError, match=f"must be at most {batch - 1}"):
        ny.torch.NoisyGradient(linear(), loss, TrainingPlan(mechanism))


class Buffered(torch.nn.Module):
    """A model whose text does not tell its buffer."""

    def __init__(self, size):
        super().__init__()
        self.layer = linear()
        self.register_buffer("extra", torch.zeros(size))

    def forward(self, x):
        return self.layer(x)


def test_a_checkpoint_of_a_model_with_other_buffers_is_refused(tmp_path):
    ledger = books(tmp_path)
    with pytest.raises(Stop):
        call(tmp_path, ledger, Buffered(2), data=Stopping(20), **EXAMPLE)
    with pytest.raises(ValueError, match="other buffers"):
        call(tmp_path, ledger, Buffered(3), data=Rows(), **EXAMPLE)


class Hoarder(torch.nn.Module):
    """Add a row to the state once its first number is large, and lose a buffer."""

    def __init__(self):
        super().__init__()
        self.layer = linear()
        self.register_buffer("scale", torch.ones(1).double())
        self.row = torch.zeros(3)

    def forward(self, x):
        if bool((x > 50).any()):
            self.row = x[0].clone()
            self.register_buffer("more", x[0].clone())
            self.add_module("next", linear())
        return self.layer(x)

    def get_extra_state(self):
        return self.row

    def set_extra_state(self, state):
        pass


def test_what_a_model_adds_on_an_unusual_row_is_not_published(tmp_path):
    x = X.clone()
    x[7] = torch.tensor([99.0, 98.0, 97.0])
    ledger = books(tmp_path)
    trained = call(tmp_path, ledger, Hoarder(), data=(x, Y), microbatch=1)
    assert set(trained.state) == {"layer.weight", "layer.bias", "scale"}
    assert trained.state["scale"] == 1
    assert Trained.load(tmp_path / "out").state.keys() == trained.state.keys()


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
    import doctest

    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for thing in (ny.torch, ny.torch.NoisyGradient, TrainingPlan):
        for test in doctest.DocTestFinder(exclude_empty=True).find(thing, "ny", globs={}):
            assert runner.run(test).failed == 0
