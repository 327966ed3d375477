"""Each setting of the installed Opacus is proven or refused by name, and samples are counted."""

import importlib
import inspect
import math
import pkgutil
import re

import pytest
import torch
from opacus import PrivacyEngine
from opacus.data_loader import CollateFnWithEmpty, DPDataLoader
from opacus.grad_sample import GradSampleHooks, GradSampleModule, register_grad_sampler
from opacus.grad_sample.gsm_base import AbstractGradSampleHooks
from opacus.optimizers import DPOptimizer, DPPerLayerOptimizer
from opacus.schedulers import ExponentialGradClip, StepNoise
from opacus.utils.batch_memory_manager import BatchMemoryManager
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch.nn import functional
from torch.utils.data import DataLoader, Sampler, TensorDataset

import neyman as ny
from neyman.opacus import check_batches, make_exact

pytestmark = pytest.mark.filterwarnings("ignore")
ROWS, DELTA = 100, 1e-5
X = torch.randn(ROWS, 4)
DATA = TensorDataset(X, (X[:, 0] > 0).long())


class Private:
    """What make_private returns, and its arguments."""

    def __init__(self, *, engine=None, batch=10, data=DATA, plain=None, loader=None, **more):
        self.plain = torch.nn.Sequential(torch.nn.Linear(4, 2)) if plain is None else plain
        self.engine = engine or PrivacyEngine(accountant="neyman")
        make = self.engine.make_private
        if "target_epsilon" in more:
            make = self.engine.make_private_with_epsilon
        else:
            more.setdefault("noise_multiplier", 1.0)
        more.setdefault("max_grad_norm", 1.0)
        self.module, self.optimizer, *_, self.loader = make(
            module=self.plain,
            optimizer=torch.optim.SGD(self.plain.parameters(), lr=0.1),
            data_loader=loader or DataLoader(data, batch_size=batch),
            **more,
        )

    def check(self):
        hook = self.optimizer.step_hook
        rate = getattr(hook, "sample_rate", 0.1)
        check_batches(self.loader, self.optimizer, rate, self.module, self.loss)
        return self

    def check_exact(self):
        make_exact(self.module, self.optimizer, self.loader, self.loss)
        return self

    def loss(self, model, batch):
        reduction = self.optimizer.loss_reduction
        return functional.cross_entropy(model(batch[0]), batch[1], reduction=reduction)

    def backward(self, x, y):
        self.optimizer.zero_grad()
        self.loss(self.plain, (x, y)).backward()

    def train(self, batches=None):
        for x, y in self.loader if batches is None else batches:
            self.backward(x, y)
            self.optimizer.step()

    @property
    def steps(self):
        return len(self.engine.accountant)


# Of each argument: values that are accepted, and values that are refused with the words of the
# refusal. Objects that an argument needs in each call are varied in tests of their own.
NEEDED = {"module", "optimizer", "data_loader"}
VERDICTS = {
    "criterion": ([torch.nn.MSELoss()], []),  # used by ghost clipping alone
    "noise_multiplier": ([0.5, 2], [(-1.0, "noise_multiplier"), (math.nan, "noise_multiplier")]),
    "target_epsilon": ([3.0], []),
    "target_delta": ([1e-6], []),
    "epochs": ([2], []),
    "max_grad_norm": ([0.5, 3], [(0.0, "max_grad_norm"), (math.inf, "max_grad_norm")]),
    "batch_first": ([True], [(False, "batch_first = ")]),
    "loss_reduction": (["mean", "sum"], []),
    "poisson_sampling": ([True], [(False, "loader is a DataLoader: Poisson samples are acc")]),
    "clipping": (
        ["flat"],
        [("adaptive", "optimizer is a AdaClipDPOptimizer: it divides by the actual size")],
    ),
    "noise_generator": ([None], [(torch.Generator(), r"optimizer\.generator = .* a seed")]),
    "grad_sample_mode": (
        ["hooks", "functorch"],
        [
            ("ew", "module is a GradSampleModuleExpandedWeights"),
            ("no_op", "module is a GradSampleModuleNoOp"),
            ("ghost", "optimizer is a DPOptimizerFastGradientClipping: it counts one sample"),
        ],
    ),
    "wrap_model": ([True, False], []),
    "rand_on_empty": ([False], [(True, "rand_on_empty = True: it puts a random row")]),
    "kwargs": ([], []),
}
ADAPTIVE = {
    "target_unclipped_quantile": 0.5,
    "clipbound_learning_rate": 0.2,
    "max_clipbound": 2.0,
    "min_clipbound": 0.1,
    "unclipped_num_std": 2.0,
}
TARGET = {"target_epsilon": 2.0, "target_delta": DELTA, "epochs": 1}
MAKERS = [PrivacyEngine.make_private, PrivacyEngine.make_private_with_epsilon]


def arguments(function):
    return inspect.signature(function).parameters.keys() - {"self"}


def test_each_argument_of_the_installed_opacus_has_a_verdict():
    assert set().union(*map(arguments, MAKERS)) == VERDICTS.keys() | NEEDED


def cases(which):
    for name, verdict in VERDICTS.items():
        for value in verdict[which]:
            for maker in MAKERS:
                if name in arguments(maker):
                    base = TARGET if maker is MAKERS[1] else {}
                    shown = value[0] if which else value
                    # The text of an object has its place in memory, another in each process.
                    shown = re.sub(r"<(\S+) object at .*", r"\1", str(shown))
                    yield pytest.param(base, name, value, id=f"{maker.__name__}-{name}-{shown}")


@pytest.mark.parametrize(("base", "name", "value"), list(cases(0)))
def test_accepted_arguments_train_and_get_an_epsilon(base, name, value):
    private = Private(**{**base, name: value}).check()
    private.train()
    sigma = private.optimizer.noise_multiplier
    steps = ny.Gaussian(sigma).subsample(rate=math.ceil(0.1 * 2**24) / 2**24) * 10
    assert private.engine.get_epsilon(DELTA) == steps.tradeoff().epsilon(DELTA).upper


@pytest.mark.parametrize(("base", "name", "case"), list(cases(1)))
def test_other_arguments_are_refused_by_name(base, name, case):
    value, words = case
    private = Private(**{**base, name: value, **(ADAPTIVE if value == "adaptive" else {})})
    with pytest.raises(ValueError, match=words):
        private.check()


def test_clipping_by_layer_is_accepted_with_its_norm():
    norms = [0.6, 0.8]
    for base in ({}, TARGET):
        private = Private(clipping="per_layer", max_grad_norm=norms, **base).check()
        private.train()
        assert private.engine.get_epsilon(DELTA) > 0
    private.optimizer.max_grad_norm = 0.5
    with pytest.raises(ValueError, match="less than the root of the sum of squares"):
        private.train()
    with pytest.raises(ValueError, match="less than the root of the sum of squares"):
        private.check()


def classes(package, parent):
    """All classes below ``parent`` in the modules of a package or module of Opacus."""
    names = pkgutil.walk_packages(getattr(package, "__path__", []), package.__name__ + ".")
    modules = [importlib.import_module(module.name) for module in names]
    return {
        kind
        for module in (package, *modules)
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, parent)
        and kind.__module__.startswith("opacus.")
        and not inspect.isabstract(kind)
    }


def of(part):
    """The object of a training with this name."""
    return {
        "optimizer": lambda p: p.optimizer,
        "loader": lambda p: p.loader,
        "loader.batch_sampler": lambda p: p.loader.batch_sampler,
        "loader.collate_fn": lambda p: p.loader.collate_fn,
        "module": lambda p: p.module,
    }[part]


PROVEN = [
    ("optimizer", "opacus.optimizers", DPOptimizer, {DPOptimizer, DPPerLayerOptimizer}),
    ("loader", "opacus.data_loader", DataLoader, {DPDataLoader}),
    ("loader.collate_fn", "opacus.data_loader", CollateFnWithEmpty, {CollateFnWithEmpty}),
    ("loader.batch_sampler", "opacus.utils", Sampler, {UniformWithReplacementSampler}),
    ("module", "opacus.grad_sample", AbstractGradSampleHooks, {GradSampleModule, GradSampleHooks}),
]


@pytest.mark.parametrize(
    ("part", "package", "parent", "proven"), PROVEN, ids=[each[0] for each in PROVEN]
)
def test_each_class_of_the_installed_opacus_is_proven_or_refused(part, package, parent, proven):
    """And so are subclasses, whatever their name."""
    kinds = classes(importlib.import_module(package), parent)
    assert proven <= kinds
    own = {type(kind.__name__, (kind,), {}) for kind in proven}
    for kind in (kinds | own) - proven:
        private = Private()
        if part == "module":
            private.module = kind.__new__(kind)
        else:
            of(part)(private).__class__ = kind
        with pytest.raises(ValueError, match=f"{part} is a {kind.__name__}: "):
            private.check()


@pytest.mark.parametrize("part", [part for part, *_ in PROVEN if part != "module"])
def test_a_new_attribute_is_refused_by_name(part):
    private = Private()
    of(part)(private).newest = True
    with pytest.raises(ValueError, match=rf"{part}\.newest is not an attribute of Opacus"):
        private.check()


def custom_collate(rows):
    return torch.utils.data.default_collate(rows)


OWN = type("OwnSGD", (torch.optim.SGD,), {})(torch.nn.Linear(4, 2).parameters(), lr=0.1)


def other_loader(**more):
    return DataLoader(DATA, batch_size=10, **more)


def replaced(name, value):
    def change(private):
        owner, _, attribute = name.rpartition(".")
        setattr(of(owner)(private), attribute, value)

    return change


@pytest.mark.parametrize(
    ("arguments", "change", "words"),
    [
        ({"loader": other_loader(collate_fn=custom_collate)}, None, "may mix rows"),
        ({"loader": other_loader(generator=torch.Generator())}, None, r"loader\.generator = "),
        (
            {"loader": other_loader(num_workers=1, in_order=False)},
            replaced("loader.in_order", False),
            r"in_order = False",
        ),
        ({"plain": torch.nn.Linear(4, 2).to(torch.bfloat16)}, None, r"a parameter is torch\.bfl"),
        ({}, replaced("optimizer.secure_mode", True), "secure_mode = True: its generator"),
        ({}, replaced("optimizer.step_hook", lambda _: None), "step_hook is a function"),
        ({}, replaced("optimizer.expected_batch_size", 0), "reveals the size"),
        ({}, replaced("optimizer.scale_grad", lambda: None), "optimizer.scale_grad is not an attr"),
        ({}, replaced("optimizer.step", lambda: None), r"optimizer.step\(\) is not an attribute"),
        ({}, replaced("loader.batch_sampler.sample_rate", 0.2), "the rate that is drawn"),
        ({}, replaced("loader.batch_sampler.num_samples", 99), "is not the number of rows"),
        ({}, lambda p: p.optimizer.signal_skip_step(), "skipped steps"),
        ({}, replaced("optimizer.original_optimizer", OWN), "original_optimizer is a OwnSGD"),
        ({}, lambda p: setattr(p, "module", None), "module is a NoneType: it was not given"),
        ({}, lambda p: setattr(p, "module", Private().module), "parameters that module lacks"),
    ],
)
def test_other_values_are_refused_by_name(arguments, change, words):
    private = Private(**arguments)
    if change is not None:
        change(private)
    with pytest.raises(ValueError, match=words):
        private.check()


def test_other_accountants_rates_and_seeds_are_refused_by_name():
    with pytest.raises(ValueError, match="step_hook is a function: it does not count samples"):
        Private(engine=PrivacyEngine(accountant="rdp")).check()
    private = Private()
    with pytest.raises(ValueError, match=r"sample_rate = 0\.2, and the optimizer's hook"):
        check_batches(private.loader, private.optimizer, 0.2, private.module, private.loss)
    torch.manual_seed(42)
    try:
        with pytest.raises(ValueError, match=r"initial_seed\(\) = 42: .* Call torch.seed"):
            private.check()
    finally:
        torch.seed()
    private.check()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with pytest.raises(ValueError, match=r"get_default_dtype\(\) = torch.bfloat16"):
            Private().check()
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("optimizer.expected_batch_size", 9),
        ("optimizer.secure_mode", True),
        ("optimizer.generator", torch.Generator()),
        ("optimizer.scale_grad", lambda: None),
        ("loader.batch_sampler.sample_rate", 0.05),
        ("loader.collate_fn.rand_on_empty", True),
        ("module.loss_reduction", "sum"),
    ],
)
def test_a_setting_that_changes_after_the_check_is_refused_at_the_next_step(name, value):
    private = Private().check()
    private.train()
    replaced(name, value)(private)
    with pytest.raises(ValueError, match=f"{name} has changed since check_batches"):
        private.train()
    with pytest.raises(ValueError, match="that no step accounts for: 1"):
        private.engine.get_epsilon(DELTA)


# Samples and steps


def test_four_samples_in_one_step_are_refused():
    private = Private().check()
    for skip in (True, True, True, False):
        private.optimizer.signal_skip_step(do_skip=skip)
    with pytest.raises(ValueError, match="the sampler drew 4 samples for this step"):
        private.train()
    assert private.steps == 0


@pytest.mark.parametrize("steps", [0, 8])
@pytest.mark.parametrize("rate", [0.1, 1e-9])
@pytest.mark.parametrize("workers", [0, 2])
def test_two_samples_in_one_step_are_refused_wherever_they_are(workers, rate, steps):
    private = Private(loader=other_loader(num_workers=workers))
    private.loader.batch_sampler.sample_rate = rate
    private.check()
    for skip in [False] * steps + [True, False]:
        private.optimizer.signal_skip_step(do_skip=skip)
    with pytest.raises(ValueError, match=r"samples for this step|one gradient for"):
        private.train()
    assert private.steps == steps


def test_a_sample_that_is_used_twice_or_left_out_is_refused():
    private = Private().check()
    for x, y in private.loader:
        private.backward(x, y)
        private.optimizer.step()
        private.backward(x, y)
        with pytest.raises(ValueError, match="drew no sample for this step"):
            private.optimizer.step()
        break
    private = Private(batch=1).check()  # a third of the samples is empty
    with pytest.raises(ValueError, match="a sample that is left out changes the distribution"):
        private.train(batch for batch in private.loader if len(batch[0]))


def test_rows_that_are_repeated_are_refused():
    private = Private(batch=ROWS).check()
    with pytest.raises(ValueError, match="several rows for one record"):
        private.train((x.repeat(2, 1), y.repeat(2)) for x, y in private.loader)


class Patches(torch.nn.Module):
    """The second layer has a row for each pair of columns."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.second(self.first(x).reshape(-1, 2)).reshape(len(x), 2, 2).sum(1)


class Mean(Patches):
    """The second layer has one row for all records."""

    def forward(self, x):
        return self.second(self.first(x)[:, :2].mean(0, keepdim=True)).expand(len(x), 2)


@pytest.mark.parametrize("plain", [Patches, Mean])
def test_a_layer_with_more_or_fewer_rows_than_records_is_refused(plain):
    """Flat clipping fails there. Clipping by layer would bound each of the rows."""
    arguments = {"clipping": "per_layer", "max_grad_norm": [1.0] * 4}
    with pytest.raises(ValueError, match="several rows for one record"):
        Private(plain=plain(), batch=50, **arguments).check()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("pieces", [None, 3])
def test_passes_that_end_early_and_pieces_of_samples_are_accepted(workers, pieces):
    private = Private(batch=2, loader=other_loader(num_workers=workers)).check()
    batches = private.loader
    if pieces:
        batches = BatchMemoryManager(
            data_loader=batches, max_physical_batch_size=pieces, optimizer=private.optimizer
        ).__enter__()
    for limit in (100, 4, 100):
        for number, (x, y) in enumerate(batches):
            if pieces is None and number == limit:
                break
            private.backward(x, y)
            private.optimizer.step()
    assert private.steps == 30 if pieces else 24
    assert private.engine.get_epsilon(DELTA) > 0


def test_schedulers_of_noise_clipping_and_learning_rate_are_accepted():
    private = Private()
    rate = torch.optim.lr_scheduler.StepLR(private.optimizer, 1)
    private.check()
    noise = StepNoise(private.optimizer, step_size=1, gamma=0.5)
    clip = ExponentialGradClip(private.optimizer, gamma=0.5)
    for _ in range(2):
        private.train()
        for scheduler in (rate, noise, clip):
            scheduler.step()
    assert [(sigma, count) for sigma, _, count in private.engine.accountant.history] == [
        (1.0, 10),
        (0.5, 10),
    ]
    assert private.engine.get_epsilon(DELTA) > 0


@pytest.mark.parametrize("check", [Private.check, Private.check_exact])
@pytest.mark.parametrize("frozen", [("weight",), ("weight", "bias")])
def test_a_parameter_that_is_frozen_after_the_backward_pass_does_not_move(check, frozen):
    """Its gradient is a sum without noise, which torch's optimizer would subtract.

    Opacus steps without clipping where all are frozen.
    """
    private = check(Private())
    layer = private.plain[0]
    before = [getattr(layer, name).detach().clone() for name in frozen]
    private.backward(*next(iter(private.loader)))
    for name in frozen:
        getattr(layer, name).requires_grad_(False)
    private.optimizer.step()
    assert all(torch.equal(getattr(layer, n), w) for n, w in zip(frozen, before, strict=True))
    assert private.steps == 2 - len(frozen)


def test_a_clipping_norm_that_changes_between_pieces_is_refused():
    private = Private(batch=50).check()
    manager = BatchMemoryManager(
        data_loader=private.loader, max_physical_batch_size=5, optimizer=private.optimizer
    )

    def lowered(batches):
        for number, batch in enumerate(batches):
            private.optimizer.max_grad_norm = 0.5 if number else 1.0
            yield batch

    with manager as batches, pytest.raises(ValueError, match="changed within a step"):
        private.train(lowered(batches))


@pytest.mark.parametrize("check", [Private.check, Private.check_exact])
@pytest.mark.parametrize("norm", [0.0, math.nan])
def test_a_clipping_norm_of_nothing_is_refused_by_its_name(check, norm):
    private = check(Private())
    private.optimizer.max_grad_norm = norm
    with pytest.raises(ValueError, match=r"^optimizer\.max_grad_norm = "):
        private.train()
    assert private.steps == 0


def test_a_schedule_that_moves_between_pieces_is_refused():
    """The number of pieces of a sample depends on each row, and so would the rates of all steps."""

    def train(private, schedule, *, each_piece):
        scheduler = schedule(private.optimizer, step_size=1, gamma=0.5)
        make_exact(
            private.module, private.optimizer, private.loader, private.loss, physical_batch_size=5
        )
        for x, y in private.loader:
            private.backward(x, y)
            before = private.steps
            private.optimizer.step()
            if each_piece or private.steps > before:
                scheduler.step()

    rates = torch.optim.lr_scheduler.StepLR
    for name, schedule in (("param_groups", rates), ("noise_multiplier", StepNoise)):
        private = Private(batch=50)
        with pytest.raises(ValueError, match=f"optimizer.{name} changed within a step"):
            train(private, schedule, each_piece=True)
        with pytest.raises(ValueError, match="no step accounts for"):
            private.engine.get_epsilon(DELTA)
        train(private := Private(batch=50), schedule, each_piece=False)
        assert private.engine.get_epsilon(DELTA) > 0


def test_samples_without_a_step_get_no_epsilon():
    private = Private().check()
    private.optimizer.attach_step_hook(lambda _: None)
    private.train()
    with pytest.raises(ValueError, match=r"that no step accounts for: 10"):
        private.engine.get_epsilon(DELTA)
    private = Private().check()
    assert len(list(private.loader)) == 10
    for _ in range(2):
        with pytest.raises(ValueError, match=r"that no step accounts for: 9"):
            private.engine.get_epsilon(DELTA)
        private.check()  # does not hide them
    private.engine.accountant.history = [(1.0, 0.1, 10)]
    assert private.engine.get_epsilon(DELTA) > 0


def test_samples_that_are_drawn_until_one_pleases_get_no_epsilon():
    private = Private().check()
    next(iter(private.loader))  # a look before the first step
    for _ in range(3):
        private.train([next(iter(private.loader))])
    assert private.engine.get_epsilon(DELTA) > 0
    for _ in range(2):
        private.train([next(iter(private.loader)) for _ in range(3)][2:])
    with pytest.raises(ValueError, match=r"that no step accounts for: 4"):
        private.engine.get_epsilon(DELTA)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e38])
@pytest.mark.parametrize("more", [{}, {"clipping": "per_layer", "max_grad_norm": [1.0, 1.0]}])
def test_a_record_whose_gradient_is_not_finite_is_hidden(value, more):
    """It has no norm, and one such number in the sum would show the record through all noise."""
    x = X.clone()
    x[:, 2] = value
    private = Private(data=TensorDataset(x, DATA.tensors[1]), **more).check()
    private.train()
    assert all(p.isfinite().all() for p in private.optimizer.params)


class Layers(torch.nn.Module):
    """Two linear layers, and a function of the features between them."""

    def __init__(self, between, *, last=None):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), last or torch.nn.Linear(4, 2)
        self.between = between
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x):
        return self.second(self.between(self, self.first(x)))


def normal(_, h):
    """Batch statistics, where a batch has some."""
    return (h - h.mean(0)) / (h.std(0, correction=0) + 1) if len(h) > 1 else h


MODELS = {
    "batch statistics": normal,
    "F.batch_norm": lambda _, h: functional.batch_norm(h, None, None, training=True),
    "attention over rows": lambda _, h: (h @ h.T).softmax(1) @ h,
    "the first row": lambda _, h: h - h[:1],
    "the row before": lambda _, h: h - h.roll(1, 0),
    "rows after the first": lambda m, h: torch.cat([h[:1], normal(m, h[1:])]),
    "large rows": lambda m, h: normal(m, h) if (h.abs() > 1.5).any() else h,
    "batches above eight": lambda m, h: normal(m, h) if len(h) > 8 else h,
    "the number of rows": lambda _, h: h * len(h),
    "a buffer": lambda m, h: m.total.add_(h.detach().sum(0)) * 0 + h,
    "an attribute": lambda m, h: setattr(m, "last", h.detach()) or h,
}


def pairs(output, target):
    return (output[:, None] - output[None]).square().mean() + functional.cross_entropy(
        output, target
    )


LOSSES = {
    "pairs": pairs,
    "class weights": lambda output, target: functional.cross_entropy(
        output, target, weight=torch.tensor([1.0, 9.0])
    ),
    "weights of later classes": lambda output, target: functional.cross_entropy(
        torch.cat([output, output], 1), target, weight=torch.tensor([1.0, 1.0, 9.0, 9.0])
    ),
    "an ignored class": lambda output, target: functional.cross_entropy(
        output, target, ignore_index=0
    ),
    "the largest": lambda output, target: output.max() + 0 * target.sum(),
    "the wrong reduction": lambda output, target: functional.cross_entropy(
        output, target, reduction="sum"
    ),
}


MASKS = {
    "rows of zeros": lambda x, y: x.any(1),
    "negative rows": lambda x, y: x[:, 0] > 0,
    "large rows": lambda x, y: x.abs().amax(1) < 2,
    "missing rows": lambda x, y: ~x.isnan().any(1),
    "a class": lambda x, y: y != 1,
    "no class": lambda x, y: y >= 0,
    "one class": lambda x, y: y == 0,
}


@pytest.mark.parametrize("check", [Private.check, Private.check_exact])
@pytest.mark.parametrize("which", MASKS)
def test_a_mean_over_the_rows_of_a_mask_is_refused(which, check):
    private = Private()

    def loss(model, batch):
        mask = MASKS[which](*batch)
        each = functional.cross_entropy(
            model(batch[0].nan_to_num()), batch[1].clamp(min=0), reduction="none"
        )
        return (each * mask).sum() / mask.sum().clamp(min=1)

    private.loss = loss
    with pytest.raises(ValueError, match=r"mixes rows|number of rows"):
        check(private)


@pytest.mark.parametrize("check", [Private.check, Private.check_exact])
@pytest.mark.parametrize("which", [*MODELS, *LOSSES])
def test_a_module_or_a_loss_that_mixes_or_keeps_rows_is_refused_before_a_sample(which, check):
    """Invented rows show it: 0.05 and 40 standard deviations are far apart on each of them."""
    between, private = MODELS.get(which), Private()
    if between is not None:
        private = Private(plain=Layers(between))
    else:
        private.loss = lambda model, batch: LOSSES[which](model(batch[0]), batch[1])
    before = [p.clone() for p in private.plain.parameters()]
    words = "mixes rows|number of rows|writes to '(total|last)'"
    with pytest.raises(ValueError, match=words):
        check(private)
    assert private.steps == 0
    assert all(map(torch.equal, before, private.plain.parameters()))


@register_grad_sampler(OwnLinear := type("OwnLinear", (torch.nn.Linear,), {}))
def own_gradients(layer, activations, backprops):
    return GradSampleHooks.GRAD_SAMPLERS[torch.nn.Linear](layer, activations, backprops)


ACCEPTED = {
    "dropout": lambda: torch.nn.Dropout(0.5),
    "group norm": lambda: torch.nn.GroupNorm(2, 4),
    "fixed batch norm": lambda: torch.nn.BatchNorm1d(4, affine=False).eval(),
    "own sampler": lambda: OwnLinear(4, 4),
    "constant buffer": lambda: Layers(lambda m, h: h + 0 * m.total, last=torch.nn.Linear(4, 4)),
}


@pytest.mark.parametrize("check", [Private.check, Private.check_exact])
@pytest.mark.parametrize("which", ACCEPTED)
def test_layers_that_treat_each_row_by_itself_are_accepted(which, check):
    layer = ACCEPTED[which]()
    plain = torch.nn.Sequential(torch.nn.Linear(4, 4), layer, torch.nn.Linear(4, 2))
    private = Private(plain=plain, data=TensorDataset(X.abs() + 1000, DATA.tensors[1]))

    def loss(model, batch):
        assert batch[0].nan_to_num().max() <= 10
        return Private.loss(private, model, batch)

    private.loss = loss
    check(private)
    del private.loss
    private.train()
    assert private.engine.get_epsilon(DELTA) > 0
    if which == "fixed batch norm":
        layer.train()
        with pytest.raises(ValueError, match=r"module\.training has changed"):
            private.train()


class Named(torch.utils.data.Dataset):
    """Rows that are dicts of tokens and a label, and perhaps a text."""

    def __init__(self, **more):
        self.more = more

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return {"tokens": torch.arange(4) + row % 2, "label": row % 2, **self.more}


def test_rows_of_any_form_are_invented_and_those_of_text_are_refused():
    def plain():
        return torch.nn.Sequential(
            torch.nn.Embedding(5, 3), torch.nn.Flatten(), torch.nn.Linear(12, 2)
        )

    private = Private(plain=plain(), data=Named())
    private.loss = lambda model, batch: functional.cross_entropy(
        model(batch["tokens"]), batch["label"]
    )
    private.check()
    private.loss = lambda model, batch: pairs(model(batch["tokens"]), batch["label"])
    with pytest.raises(ValueError, match="mixes rows"):
        private.check()
    for private.loss in (None, torch.tensor(0.0)):
        with pytest.raises(ValueError, match=r"loss is a (NoneType|Tensor): a loss that mixes"):
            private.check()
    private.loss = lambda model, batch: model(batch["words"])
    with pytest.raises(ValueError, match="fails on invented rows: KeyError"):
        private.check()
    with pytest.raises(ValueError, match="has a str, and only tensors"):
        Private(plain=plain(), data=Named(name="row")).check()


@pytest.mark.parametrize("check", [Private.check, Private.check_exact])
def test_what_a_layer_writes_to_a_buffer_on_a_private_row_is_undone(check):
    def rare(m, h):
        if h.abs().sum() > 1e4:
            m.total.add_(h.detach().sum(0))
        return h

    private = check(Private(plain=Layers(rare), data=TensorDataset(X * 1e4, DATA.tensors[1])))
    private.train()
    assert not private.plain.total.any()
    assert private.steps == 10


@pytest.mark.parametrize("check", [Private.check, Private.check_exact])
@pytest.mark.parametrize("moment", ["before", "between", "within"])
def test_a_sum_that_was_not_clipped_here_gets_no_step(check, moment):
    private = check(Private())
    weight = private.optimizer.params[0]
    x, y = next(iter(private.loader))
    private.backward(x, y)
    kind = torch.int64 if check is Private.check_exact else weight.dtype
    if moment == "before":
        weight.summed_grad = torch.full_like(weight, 100, dtype=kind)
    keep = private.optimizer.step_hook.draws._keep_sums

    def changed():
        keep()
        if moment == "within":
            weight.summed_grad += 100
        if moment == "between":
            weight.summed_grad = weight.summed_grad + 100

    private.optimizer.step_hook.draws._keep_sums = changed
    with pytest.raises(ValueError, match="summed_grad that is not the clipped sum"):
        private.optimizer.step()
    assert private.steps == 0


class Falling(float):
    """A sigma that is another number each time that it is read."""

    reads = 0

    def __float__(self):
        Falling.reads += 1
        return 1 / Falling.reads


def test_the_sigma_that_is_drawn_is_the_one_that_is_counted():
    private = Private().check_exact()
    private.optimizer.noise_multiplier = Falling(1)
    with pytest.raises(ValueError, match="changed within a step"):
        private.train()
    assert private.steps == 0


def test_gradients_in_16_bits_are_refused():
    """Their norms are rounded, so that a clipped row is longer than the clipping norm."""
    private = Private().check()
    x, y = next(iter(private.loader))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        private.backward(x, y)
    with pytest.raises(ValueError, match=r"gradients of single rows are torch\.bfloat16"):
        private.optimizer.step()


# What is proven about the accepted settings


def gradients(private):
    return torch.cat([p.grad.flatten() for p in private.optimizer.params])


def wide(**more):
    """A step on 4 rows in every sample, with 20,002 coordinates."""
    plain = torch.nn.Linear(10_000, 2)
    torch.nn.init.zeros_(plain.weight)
    data = TensorDataset(torch.randn(4, 10_000), torch.tensor([0, 1, 0, 1]))
    return Private(plain=plain, data=data, batch=4, **more).check()


@pytest.mark.parametrize(
    ("more", "norm"),
    [
        ({"max_grad_norm": 3.0}, 3.0),
        ({"clipping": "per_layer", "max_grad_norm": [3.0, 4.0]}, 5.0),
        ({"max_grad_norm": 3.0, "loss_reduction": "sum"}, 3.0),
        ({"max_grad_norm": 3.0, "grad_sample_mode": "functorch"}, 3.0),
    ],
)
def test_the_sum_moves_by_the_clipping_norm_and_the_noise_is_sigma_times_it(more, norm):
    """Without noise one record has this norm. Noise has the stated standard deviation."""
    divisor = 1 if "loss_reduction" in more else 4
    private = wide(noise_multiplier=0.0, **more)
    x, y = next(iter(private.loader))
    private.backward(x[:1], y[:1])
    private.optimizer.clip_and_accumulate()
    sums = torch.cat([p.summed_grad.flatten() for p in private.optimizer.params])
    assert sums.norm() <= norm * (1 + 1e-6)
    assert sums.norm() > 0.5 * norm
    private = wide(noise_multiplier=7.0, **more)
    private.train()
    noisy = divisor * gradients(private) / (7 * norm)
    deviations = (noisy.square().mean() - 1) / math.sqrt(2 / len(noisy))
    assert abs(deviations) < 7  # the sum of gradients adds less than .1


def test_an_empty_sample_is_a_step_of_noise_over_the_declared_divisor():
    plain = torch.nn.Linear(10_000, 2)
    data = TensorDataset(torch.randn(4, 10_000), torch.tensor([0, 1, 0, 1]))
    private = Private(plain=plain, data=data, batch=1, noise_multiplier=2.0)
    private.optimizer.expected_batch_size = 5
    private.check()
    sampler = private.loader.batch_sampler
    while True:
        for x, y in private.loader:
            private.backward(x, y)
            private.optimizer.step()
            if not len(x):
                break
        else:
            continue
        break
    assert sampler.draws.unaccounted == 0
    noise = gradients(private) * 5 / 2
    assert abs(noise.square().mean() - 1) < 7 * math.sqrt(2 / len(noise))


@pytest.mark.parametrize("rate", [0.1, 1 / 48, 1e-3, 1e-6, 1e-7])
def test_the_rate_that_torch_draws_is_accounted(rate):
    data = TensorDataset(torch.zeros(8, 4), torch.zeros(8, dtype=torch.long))
    private = Private(data=data, batch=1)
    private.loader.batch_sampler.sample_rate = private.optimizer.step_hook.sample_rate = rate
    private.check()
    rate_of_torch = private.optimizer.step_hook.draws.rate
    numbers = torch.arange(2**24, dtype=torch.float64).div(2**24).float()
    assert rate_of_torch == (numbers < rate).double().mean()
    assert torch.equal(torch.rand(1000) * 2**24 % 1, torch.zeros(1000))
    assert rate <= rate_of_torch <= rate + 2**-24
