"""Sums of clipped gradients of a module, beside a loop over examples in float64."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import neyman as ny
from neyman.analysis.training import module_gradients
from neyman.analysis.training.module_gradients import ModuleGradients, check_module, fixed_kernels
from neyman.torch import TrainingPlan

GRID = 1 << 20
LENGTH = 6  # tokens


class Tokens(nn.Module):
    """A small transformer that looks up tokens twice, and places once."""

    def __init__(self, *, tied=False, padding=None, dropout=0.0):
        super().__init__()
        self.words = nn.Embedding(30, 8, padding_idx=padding)
        self.places = nn.Embedding(LENGTH, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout, batch_first=True)
        self.out = nn.Linear(8, 30, bias=False)
        if tied:
            self.out.weight = self.words.weight

    def forward(self, x):
        features = self.words(x) + self.words(x.flip(1)) + self.places(torch.arange(LENGTH))
        return self.out(self.layer(features)).transpose(1, 2)


class Adapter(nn.Module):
    """A frozen linear layer, and the product of two small ones that train (LoRA)."""

    def __init__(self, layer, rank):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)

    def forward(self, x):
        return self.layer(x) + self.up(self.down(x))


class Calls(nn.Module):
    """A model that calls a function with its layer."""

    def __init__(self, function, layer=None):
        super().__init__()
        self.layer, self.function = layer or nn.Linear(4, 3), function

    def forward(self, x):
        return self.function(self.layer, x)


def network():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def images(count):
    return torch.randn(count, 1, 8, 8), torch.randint(0, 10, (count,))


def sentences(count):
    return torch.randint(0, 9, (count, LENGTH)), torch.randint(0, 30, (count, LENGTH))


def loop(model, rows, clips, loss=F.cross_entropy):
    """Return the sum of clipped gradients in float64, by autograd, one example at a time.

    Args:
        clips: the clip of each group of parameter names.
    """
    model = model.double()
    named = {k: p for k, p in model.named_parameters() if p.requires_grad}
    total = {k: torch.zeros_like(p) for k, p in named.items()}
    for x, y in zip(*rows, strict=True):
        given = x.double() if x.is_floating_point() else x
        gradients = torch.autograd.grad(loss(model(given[None]), y[None]), list(named.values()))
        one = dict(zip(named, gradients, strict=True))
        for names, clip in clips.items():
            norm = math.sqrt(sum(float(one[k].square().sum()) for k in names))
            for k in names:
                total[k] += one[k] * min(1.0, clip / norm)
    model.float()
    return torch.cat([x.flatten() for x in total.values()])


def sums(model, loss=F.cross_entropy, clip=1, **more):
    plan = TrainingPlan(ny.DPSGD(9, 3, 1, 1), clip, **{"grid": GRID, **more})
    return ModuleGradients(model, loss, plan)


def fine(gradients, rows):
    """Return the sum of rows before its last rounding."""
    gradients.add(rows)
    total = torch.cat([x.flatten() for x in gradients.totals.values()])
    gradients.take()
    return total


def difference(gradients, rows, want):
    """Return the largest error of an entry, in units of the clip."""
    return (gradients.sum(rows) * (gradients.clip / gradients.grid) - want).abs().max()


def assert_loop(gradients, model, rows, clip=1, loss=F.cross_entropy):
    """The sum is that of a loop over examples, all parameters clipped together."""
    want = loop(model, rows, {tuple(gradients.parameters): clip}, loss)
    assert difference(gradients, rows, want) < allowed(gradients, len(rows[0]))


def allowed(gradients, count):
    """Return what rounding to the grid and the margin for it may cost `count` examples.

    Entries rounded to the grid move a gradient by at most sqrt(size) / 2 units, and the margin is
    as large. An entry has at most the clip.
    """
    units = math.sqrt(gradients.size)
    return count * gradients.clip * (units / gradients.grid + 2e-5) + 1e-5


@pytest.mark.parametrize("microbatch", [1, 4, 32])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_sum_is_that_of_a_loop(microbatch, reduction):
    model, rows, loss = network(), images(9), nn.CrossEntropyLoss(reduction=reduction)
    gradients = sums(model, loss, clip=2.5, microbatch=microbatch)
    gradients.check(rows)
    assert_loop(gradients, model, rows, 2.5)
    assert gradients.size == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("microbatch", [1, 4])
def test_a_layer_may_have_more_entries_than_float64_adds_up_exactly(microbatch):
    model, rows = nn.Sequential(nn.Flatten(), nn.Linear(64, 400), nn.Linear(400, 400)), images(2)
    gradients = sums(model, microbatch=microbatch)
    assert gradients.size > 1 << 17
    assert_loop(gradients, model, rows)


class Tempered(nn.Module):
    """A linear layer, and a parameter that is a single number."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 4)
        self.temperature = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return self.layer(x) * self.temperature


@pytest.mark.parametrize("microbatch", [1, 4])
def test_a_parameter_may_be_a_single_number(microbatch):
    model, rows = Tempered(), (torch.randn(6, 3), torch.randint(0, 4, (6,)))
    gradients = sums(model, microbatch=microbatch)
    gradients.check(rows)
    assert_loop(gradients, model, rows)


def test_no_rows_add_up_to_zeros():
    gradients = sums(network(), microbatch=4)
    total = gradients.sum(images(0))
    assert total.dtype == torch.int64
    assert total.tolist() == [0] * gradients.size


@pytest.mark.parametrize("microbatch", [1, 8])
def test_a_row_is_the_same_in_other_company_and_in_any_place(microbatch):
    gradients = sums(network(), microbatch=microbatch)
    x, y = images(8)
    alone = torch.stack([fine(gradients, (x[i : i + 1], y[i : i + 1])) for i in range(8)])
    assert torch.equal(fine(gradients, (x, y)), alone.sum(0))
    order = torch.randperm(8)
    assert torch.equal(fine(gradients, (x[order], y[order])), alone.sum(0))
    x[3] = torch.nan
    x[5] = 1e30
    rest = torch.arange(8) != 5
    without = fine(gradients, (x[rest], y[rest]))
    assert torch.equal(without, alone[rest].sum(0) - alone[3])
    assert (fine(gradients, (x, y)) - without).double().norm() <= GRID << gradients._bits


def test_pieces_of_a_batch_are_one_logical_batch():
    gradients = sums(network(), microbatch=4)
    x, y = images(24)
    pieces = sum(fine(gradients, (x[i : i + 8], y[i : i + 8])) for i in (0, 8, 16))
    assert torch.equal(fine(gradients, (x, y)), pieces)


@pytest.mark.parametrize(
    "groups", ["layers", {"convolution": ["0", "1.weight"], "b": ["1.bias", "5"]}]
)
@pytest.mark.parametrize("shares", ["equal", "own"])
def test_groups_have_their_own_clips_and_one_exact_sensitivity(groups, shares):
    names = {"0": ["0.weight", "0.bias"], "1": ["1.weight", "1.bias"], "5": ["5.weight", "5.bias"]}
    if groups != "layers":
        names = {"convolution": ["0.weight", "0.bias", "1.weight"], "b": ["1.bias", *names["5"]]}
    own = {name: 0.3 * (1 + at) for at, name in enumerate(names)}
    model, rows = network(), images(3)
    gradients = sums(model, clip=0.5 if shares == "equal" else own, microbatch=2, groups=groups)
    clips = own if shares == "own" else dict.fromkeys(names, 0.5 / len(names) ** 0.5)
    assert gradients.clip == pytest.approx(math.hypot(*clips.values()))
    want = loop(model, rows, {tuple(names[k]): clips[k] for k in names})
    assert difference(gradients, rows, want) < allowed(gradients, 3)
    one = gradients.sum((rows[0][:1], rows[1][:1])).tolist()
    assert sum(v * v for v in one) <= GRID * GRID


@pytest.mark.parametrize("microbatch", [1, 4])
@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("tied", [False, True])
def test_embeddings_add_up_repeated_tokens_before_clipping(microbatch, padding, tied):
    model, rows = Tokens(tied=tied, padding=padding), sentences(5)
    gradients = sums(model, clip=0.7, microbatch=microbatch)
    want = loop(model, rows, {tuple(gradients.parameters): 0.7})
    model.places.sparse = True
    gradients.check(rows)
    assert difference(gradients, rows, want) < allowed(gradients, 5)


def watch(monkeypatch):
    """Return a list that gets the sizes of the parts of each sum, written out or products."""
    shapes, add = [], module_gradients.add_rows

    def count(written, products, *given):
        sizes = [tuple(part.rows.shape) for part in written]
        shapes.append((sizes, sorted(tuple(x.weight.shape) for x in products)))
        add(written, products, *given)

    monkeypatch.setattr(module_gradients, "add_rows", count)
    return shapes


def test_an_embedding_has_no_table_per_example(monkeypatch):
    model = nn.Sequential(nn.Embedding(10**5, 2), nn.Flatten(), nn.Linear(2 * LENGTH, 3))
    gradients = sums(model, microbatch=4)
    x = torch.full((4, LENGTH), 10**5 - 1)
    rows = x, torch.zeros(4, dtype=torch.long)
    gradients.check(rows)
    shapes = watch(monkeypatch)
    total = gradients.sum(rows)
    assert shapes == [([], [(3, 2 * LENGTH), (10**5, 2)])]
    assert set(total.nonzero()[:, 0].tolist()) <= {*range(2 * 10**5 - 2, gradients.size)}


def test_adapters_of_a_transformer_train_alone():
    model = Tokens().requires_grad_(False)
    model.layer.linear1 = Adapter(model.layer.linear1, 2)
    model.layer.linear2 = Adapter(model.layer.linear2, 2)
    rows = sentences(5)
    gradients = sums(model, clip=0.1, microbatch=4)
    names = [f"layer.linear{i}.{part}.weight" for i in (1, 2) for part in ("down", "up")]
    assert list(gradients.parameters) == names
    want = loop(model, rows, {tuple(names): 0.1})
    assert want.any()
    assert difference(gradients, rows, want) < allowed(gradients, 5)


def test_dropout_differs_between_examples_and_leaves_the_generator_of_torch():
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(400, 2))
    x, y = torch.ones(4, 400), torch.zeros(4, dtype=torch.long)
    for microbatch in (1, 4):
        gradients = sums(model, clip=9, microbatch=microbatch)
        state = torch.get_rng_state()
        total = gradients.sum((x, y))[:400].double()
        assert torch.equal(torch.get_rng_state(), state)
        assert len(total.abs().unique()) > 3  # 0 to 4 masks keep an input
        assert not torch.equal(gradients.sum((x, y))[:400].double(), total)


class Several(nn.Module):
    """Convolutions of several shapes, and a linear layer that is called twice."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 12, 3, stride=2, padding=1)
        self.second = nn.Conv2d(12, 8, 2, dilation=2, padding="valid")
        self.grouped = nn.Conv2d(8, 8, 1, groups=2)
        self.twice = nn.Linear(32, 32)
        self.out = nn.Linear(32, 10)

    def forward(self, x):
        features = self.grouped(self.second(self.first(x).relu()).relu()).flatten(1)
        return self.out(input=self.twice(self.twice(features).relu()).relu())


@pytest.mark.parametrize("clip", [0.1, 100.0])
@pytest.mark.parametrize("microbatch", [1, 4])
@pytest.mark.parametrize(
    ("make", "rows", "layers"),
    [
        (Several, images, {"second", "twice", "out"}),
        (Tokens, sentences, {"words", "places", "layer.linear1", "layer.linear2", "out"}),
        (lambda: Tokens(tied=True), sentences, {"places", "layer.linear1", "layer.linear2"}),
    ],
)
def test_no_gradient_of_a_layer_is_written_out(make, rows, layers, microbatch, clip, monkeypatch):
    model, data = make().to(memory_format=torch.channels_last), rows(5)
    model.out.register_forward_hook(lambda *given: given[-1] * 2)
    gradients = sums(model, clip=clip, microbatch=microbatch)
    shapes = watch(monkeypatch)
    gradients.check(data)
    assert_loop(gradients, model, data, clip)
    weights = [model.get_submodule(name).weight for name in layers]
    assert shapes[0][1] == sorted(tuple(w.shape) for w in weights)
    # One record more moves the sum by at most the grid, after rounding too.
    more = gradients.sum(data) - gradients.sum(tuple(x[:4] for x in data))
    assert sum(v * v for v in more.tolist()) <= GRID * GRID


def test_products_clip_groups_in_any_order_and_drop_rows_that_are_not_finite():
    model, (x, y) = Several(), images(3)
    gradients = sums(model, microbatch=2, groups="layers")
    names = {name.rpartition(".")[0] for name in gradients.parameters}
    clips = {(f"{k}.weight", f"{k}.bias"): len(names) ** -0.5 for k in names}
    want = loop(model, (x, y), clips)
    assert difference(gradients, (x, y), want) < allowed(gradients, 3)
    order = torch.tensor([2, 0, 1])
    assert torch.equal(gradients.sum((x, y)), gradients.sum((x[order], y[order])))
    x[1] = torch.nan
    rest = torch.tensor([0, 2])
    assert torch.equal(gradients.sum((x, y)), gradients.sum((x[rest], y[rest])))


@pytest.mark.parametrize("microbatch", [1, 4])
@pytest.mark.parametrize(("make", "data"), [(network, images), (Tokens, sentences)])
def test_the_forward_pass_takes_mixed_precision(make, data, microbatch):
    torch.manual_seed(1)  # rare networks lose more than a tenth of the clip to 8 bits
    model, rows = make(), data(5)
    gradients = sums(model, microbatch=microbatch, autocast="bfloat16")
    want = loop(model, rows, {tuple(gradients.parameters): 1.0})
    assert 1e-4 < difference(gradients, rows, want) < 0.1


def test_settings_of_torch_come_back():
    settings = (
        lambda: torch.backends.cudnn.conv.fp32_precision,
        lambda: torch.backends.cudnn.benchmark,
        torch.are_deterministic_algorithms_enabled,
        torch.backends.cuda.flash_sdp_enabled,
    )
    torch.backends.cudnn.benchmark = True
    before = [setting() for setting in settings]
    with fixed_kernels(torch.device("cpu")):
        assert [setting() for setting in settings] == ["ieee", False, True, False]
    assert [setting() for setting in settings] == before
    torch.backends.cudnn.benchmark = False


@pytest.mark.parametrize("microbatch", [1, 4])
def test_batch_normalization_with_fixed_statistics_is_a_layer_as_others(microbatch):
    norm = nn.BatchNorm2d(4).eval()
    norm.running_mean.normal_()
    model, rows = network(), images(5)
    model[1] = norm
    gradients = sums(model, microbatch=microbatch)
    gradients.check(rows)
    assert_loop(gradients, model, rows)
    norm.track_running_stats, norm.running_mean, norm.running_var = False, None, None
    with pytest.raises(ValueError, match="mixes the examples"):
        check_module(model)  # it has no statistics but those of a batch


class Output:
    """What transformers return: an object that has the tensor."""

    def __init__(self, logits):
        self.logits = logits


@pytest.mark.parametrize("microbatch", [1, 4])
def test_a_loss_may_take_the_tensor_out_of_an_output_and_is_told_so(microbatch):
    model, rows = Calls(lambda layer, x: Output(layer(x))), (torch.ones(5, 4), torch.ones(5).long())
    with pytest.raises(ValueError, match=r"returns a Output, .*cross_entropy\(output\.logits"):
        sums(model, microbatch=microbatch).check(rows)
    taken = sums(model, lambda out, y: F.cross_entropy(out.logits, y), microbatch=microbatch)
    taken.check(rows)
    assert taken.sum(rows).any()


def sharded():
    """A model whose parameters claim to be split over processes."""
    model = nn.Linear(4, 3)
    model.weight = nn.Parameter(type("DTensor", (torch.Tensor,), {})(torch.ones(3, 4)))
    return model


def decided(layer, x):
    return layer(x) if x.sum() > 0 else -layer(x)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Calls(lambda layer, x: layer(x) * x.sum().item()), "a Calls.*\\.item\\(\\)"),
        (Calls(decided), "a Calls.*decides by the value"),
        (Calls(lambda layer, x: layer(x[:, None])[0][:, 0], nn.GRU(4, 3)), "'layer', a GRU"),
        (Calls(lambda layer, x: layer(x[:, None])[0][:, 0], nn.RNN(4, 3)), "'layer', a RNN"),
    ],
)
def test_what_a_microbatch_cannot_do_works_with_one_example_per_call(model, words):
    rows = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    many = sums(model, microbatch=4)
    with pytest.raises(ValueError, match=f"(?s){words}.*microbatch=1"):
        many.check(rows)
    one = sums(model, microbatch=1)
    one.check(rows)
    assert_loop(one, model, rows)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), "BatchNorm1d.*GroupNorm"),
        (nn.BatchNorm2d(3), "BatchNorm2d.*GroupNorm"),
        (nn.BatchNorm3d(3), "BatchNorm3d.*GroupNorm"),
        (nn.SyncBatchNorm(3), "SyncBatchNorm.*GroupNorm"),
        (nn.InstanceNorm1d(3, track_running_stats=True), "InstanceNorm1d.*GroupNorm"),
        (nn.Embedding(3, 2, max_norm=1.0), "max_norm=None"),
        (nn.Embedding(3, 2, scale_grad_by_freq=True), "scale_grad_by_freq=False"),
        (nn.Linear(4, 3).requires_grad_(False), "no parameter with requires_grad"),
        (nn.Linear(4, 3, dtype=torch.complex64), "complex64"),
        (nn.DataParallel(nn.Linear(4, 3)), "model\\.module"),
        (nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2, device="meta")), "model\\.to"),
        (type("FullyShardedDataParallel", (nn.Module,), {})(), "before it was"),
        (sharded(), "before it is split"),
    ],
)
def test_layers_that_mix_examples_are_refused_by_name(model, words):
    with pytest.raises(ValueError, match=words):
        check_module(model)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"loss": nn.CrossEntropyLoss(reduction="none")}, "'mean' or 'sum'"),
        ({"loss": nn.NLLLoss(weight=torch.ones(3))}, "reduction='sum'"),
        ({"clip": 0}, "above 0"),
        ({"clip": 1e-160}, "between 1e-100 and 1e100"),
        ({"clip": 1e160}, "between 1e-100 and 1e100"),
        ({"clip": {"a": 1}}, "the groups are"),
        ({"grid": 8}, "grid = 8"),
        ({"grid": 1 << 25}, "grid = 33554432"),
        ({"groups": {"a": ["weight"]}}, "'bias' 0 times"),
        ({"groups": {"a": ["weight", "bias"], "b": ["bias"]}}, "'bias' 2 times"),
        ({"groups": "rows"}, "'layers'"),
        ({"groups": ["weight", "bias"]}, "'layers'"),
        ({"autocast": "int8"}, "bfloat16"),
    ],
)
def test_wrong_arguments_are_refused(more, words):
    with pytest.raises(ValueError, match=words):
        sums(nn.Linear(4, 3), **{"microbatch": 2, **more})


@pytest.mark.parametrize(
    ("loss", "rows", "words"),
    [
        (lambda out, _: out, (torch.ones(5, 4), torch.ones(5)), "one number"),
        (
            lambda out, _: float(out.detach().sum()),
            (torch.ones(5, 4), torch.ones(5)),
            "one number|item",
        ),
        (F.cross_entropy, (torch.ones(5, 4), torch.ones(4)), "lengths"),
        (F.cross_entropy, (torch.ones(5, 4),), "target last"),
        (
            F.cross_entropy,
            (torch.ones(5, 4, device="meta"), torch.ones(5)),
            "meta and model on cpu",
        ),
        (F.cross_entropy, (torch.ones(5, 7), torch.ones(5).long()), "a Linear"),
    ],
)
@pytest.mark.parametrize("microbatch", [1, 4])
def test_a_dry_run_refuses_before_any_charge(loss, rows, words, microbatch):
    gradients = sums(nn.Linear(4, 3), loss, microbatch=microbatch)
    with pytest.raises(ValueError, match=words):
        gradients.check(rows)


@pytest.mark.parametrize("microbatch", [1, 4])
def test_a_parameter_that_the_loss_uses_itself_is_refused(microbatch):
    """Its gradient would be lost, because a sum takes those of what the model returns."""
    model, rows = nn.Linear(4, 3), (torch.ones(5, 4), torch.ones(5).long())
    penalty = sums(
        model,
        lambda out, y: F.cross_entropy(out, y) + model.weight.square().sum(),
        microbatch=microbatch,
    )
    with pytest.raises(ValueError, match=r"'weight' itself.*weight_decay"):
        penalty.check(rows)


class Keeps(nn.Module):
    """A model whose forward pass calls a function with the model and the inputs."""

    count = torch.zeros(1)

    def __init__(self, keep):
        super().__init__()
        self.layer, self.keep = nn.Linear(4, 3), keep
        self.frozen = nn.Parameter(torch.zeros(3), requires_grad=False)
        self.register_buffer("memory", torch.zeros(3))
        self.total, self.array, self.rows, self.holder = 0.0, np.zeros(4), [], Holder()

    def forward(self, x):
        self.keep(self, x.detach())
        return self.layer(x)


class Holder:
    """An object of the user with a slot."""

    __slots__ = ("seen",)


HISTORY = []
WAYS = {
    "memory": lambda m, x: m.memory.add_(1),
    "frozen": lambda m, x: m.frozen.add_(1),
    "frozen ": lambda m, x: m.frozen.data.add_(x.mean()),
    "layer.bias": lambda m, x: m.layer.bias.data.add_(x.mean()),
    "layer.weight": lambda m, x: np.add.at(m.layer.weight.detach().numpy(), 0, float(x.mean())),
    "total": lambda m, x: setattr(m, "total", m.total + x.mean()),
    "total ": lambda m, x: setattr(m, "total", m.total + float(x.mean())),
    "total  ": lambda m, x: setattr(m, "total", x),
    "total   ": lambda m, x: setattr(m, "total", float(x.clamp(max=0).sum())),
    "array": lambda m, x: np.add.at(m.array, 0, x.numpy().mean()),
    "rows.": lambda m, x: m.rows.append(x.mean()),
    "holder.seen": lambda m, x: setattr(m.holder, "seen", x.sum()),
    "keep.seen": lambda m, x: setattr(m.keep, "seen", x.sum()),
    "type.Keeps.count": lambda m, x: setattr(Keeps, "count", Keeps.count + x.mean()),
    "keep.HISTORY": lambda m, x: HISTORY.append(1),
    "keep.defaults": lambda m, x, rows={}: rows.update(last=x.sum()),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("microbatch", [1, 4])
def test_a_model_that_keeps_something_about_a_row_is_refused(microbatch, way, monkeypatch):
    """What it keeps has no noise, however it is kept, and no number of rows per call allows it.

    One row of four numbers is not negative in four draws with a chance of 2e-5.
    """
    HISTORY.clear()
    monkeypatch.setattr(Keeps, "count", torch.zeros(1))
    model = Keeps(WAYS[way])
    before = model.layer.bias.clone(), model.layer.weight.clone()
    gradients = sums(model, microbatch=microbatch)
    for call in (gradients.check, gradients.sum):
        with pytest.raises(ValueError, match="writes to") as caught:
            call((torch.ones(5, 4), torch.tensor([0, 1, 2, 0, 1])))
        assert f"'{way.strip()}" in str(caught.value)
        assert "microbatch=1" not in str(caught.value)
    assert all(map(torch.equal, before, (model.layer.bias, model.layer.weight)))


@pytest.mark.parametrize("microbatch", [1, 2])
def test_a_sum_that_fails_never_takes_other_rows_with_one(microbatch, monkeypatch):
    rows, calls, add = (torch.rand(4, 4), torch.tensor([0, 1, 2, 0])), [], ModuleGradients._add

    def add_once_less(*values):
        calls.append(1)
        if len(calls) == 2:
            raise MemoryError("of the second sum")
        add(*values)

    gradients = sums(nn.Linear(4, 3), microbatch=microbatch)
    gradients.check(rows)
    without = gradients.sum(tuple(x[[0, 2, 3]] for x in rows))
    monkeypatch.setattr(ModuleGradients, "_add", add_once_less)
    if microbatch == 1:
        assert torch.equal(gradients.sum(rows), without)
    else:
        with pytest.raises(MemoryError, match="second sum"):
            gradients.sum(rows)


def test_a_loss_that_keeps_something_is_refused_and_what_shapes_decide_is_kept():
    losses, rows = [], (torch.ones(5, 4), torch.tensor([0, 1, 2, 0, 1]))

    def loss(output, target):
        losses.append(float(output.detach().sum()))
        return F.cross_entropy(output, target)

    gradients = sums(nn.Linear(4, 3), loss, microbatch=1)
    with pytest.raises(ValueError, match=r"writes to 'loss\.losses"):
        gradients.check(rows)
    model = Keeps(lambda m, x: setattr(m, "mask", torch.ones(x.shape[1:])))
    sums(model, microbatch=4).check(rows)


class Rare(nn.Module):
    """A model that writes to itself, and then may raise an error, on rows of a large sum."""

    def __init__(self, *, fails):
        super().__init__()
        self.layer, self.fails = nn.Linear(4, 3), fails
        self.register_buffer("memory", torch.zeros(3))

    def forward(self, x):
        if x.sum() > 100:
            for tensor in (self.layer.bias, self.memory):
                tensor.data.add_(x.sum())
            if self.fails:
                raise ValueError("row 2 holds secret 777")
        return self.layer(x)


@pytest.mark.parametrize("fails", [False, True])
def test_no_value_of_a_row_stops_a_sum_or_moves_a_parameter(fails):
    """Invented rows do not have it, so it is seen on a private one alone."""
    model, (x, y) = Rare(fails=fails), (torch.randn(3, 4), torch.tensor([0, 1, 2]))
    x[2] = 1000.0
    before = [p.clone() for p in model.parameters()]
    gradients = sums(model, microbatch=1)
    gradients.check((x, y))
    total = gradients.sum((x.flip(0), y.flip(0)))
    assert all(map(torch.equal, before, model.parameters()))
    others = gradients.sum((x[:2], y[:2]))
    assert (total - others).double().norm() <= (0 if fails else GRID)


def test_a_row_that_fails_in_a_microbatch_counts_as_zero_and_the_others_do_not():
    model, (x, y) = nn.Linear(4, 3), (torch.randn(3, 4), torch.tensor([0, 1, 2]))
    gradients = sums(model, microbatch=4)
    rest = gradients.sum((x[:2], y[:2]))
    y[2] = 3  # no class
    assert rest.any()
    assert torch.equal(gradients.sum((x, y)), rest)


def test_rows_of_unlike_lengths_are_refused():
    gradients = sums(nn.Linear(4, 3), microbatch=4)
    with pytest.raises(ValueError, match="lengths \\[4, 8\\]"):
        gradients.sum((torch.ones(4, 4), torch.ones(8).long()))


def test_weights_of_classes_are_refused_and_other_weights_are_not():
    weighted = nn.BCEWithLogitsLoss(weight=torch.tensor([1.0, 2.0, 3.0]))
    rows = torch.randn(5, 4), torch.rand(5, 3)
    model = nn.Linear(4, 3)
    gradients = sums(model, weighted, microbatch=4)
    assert_loop(gradients, model, rows, loss=weighted)


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("microbatch", [1, 4])
def test_a_sum_is_the_same_where_torch_takes_no_derivatives(guard, microbatch):
    rows = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    gradients = sums(nn.Linear(4, 3), microbatch=microbatch)
    with guard():
        inside = gradients.sum(rows)
    assert inside.any()
    assert torch.equal(inside, gradients.sum(rows))


def test_a_layer_with_a_forward_of_its_own_has_its_own_gradient():
    model, rows = network()[4:], (torch.randn(5, 4, 4, 4), torch.randint(0, 10, (5,)))
    layer = model[1]
    layer.forward = lambda x: 2 * F.linear(x, layer.weight, layer.bias)
    gradients = sums(model, microbatch=4)
    assert_loop(gradients, model, rows)


def test_dropout_has_more_than_the_seeds_of_32_bits(monkeypatch):
    """A CPU's generator takes 32 bits of a seed, so the seed alone would not make masks secret."""
    monkeypatch.setattr(module_gradients.secrets, "randbits", lambda bits: 7)
    masks = []
    before = torch.get_rng_state()
    for _ in range(2):
        with module_gradients.fresh_randomness(torch.device("cpu")):
            masks.append(torch.rand(1000))
    assert not torch.isclose(*masks).all()
    assert all(abs(float(mask.mean()) - 0.5) < 0.06 for mask in masks)  # 6.5 standard errors
    assert torch.equal(torch.get_rng_state(), before)
