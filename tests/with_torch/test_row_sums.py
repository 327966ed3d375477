"""Integer clipping and products on torch tensors: exact norms, and rows that none can change."""

import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from neyman.analysis import careful_error, grid_rows
from neyman.analysis.training import row_sums
from neyman.analysis.training.layer_factors import factors_of
from neyman.analysis.training.row_sums import Product, Written, add_rows, fine_bits

GRID = 1 << 20
TYPES = {"float32": torch.float32, "float64": torch.float64}


def total(rows, weights=None, *, clip=1.0, most=GRID, cuts=(), compiled=False):
    """Return the sum of clipped rows, whose columns are cut into parts."""
    parts = rows.tensor_split(cuts, 1) if cuts else [rows]
    sums = [torch.zeros(part.shape[1], dtype=torch.float64) for part in parts]
    given = torch.ones(len(rows), dtype=torch.float64) if weights is None else weights
    pairs = [Written(*pair) for pair in zip(parts, sums, strict=True)]
    add_rows(pairs, (), given, most / clip, most, compiled=compiled)
    return torch.cat(sums).to(torch.int64)


def each(rows, **more):
    """Return the whole numbers of each row, beside all others, by weights."""
    ones = torch.eye(len(rows), dtype=torch.float64)
    return torch.stack([total(rows, weight, **more) for weight in ones])


def most_error(size):
    """Return what the rough norm (of 2^17 units or more), the margin, and rounding may cost."""
    return (0.5 * size**0.5 + 1) * (GRID / 2**17 + 1) + GRID * 2.0**-18 + 1


def hard_rows(kind):
    """Return rows whose entries are as large, as small, as many, or as equal as they can be."""
    rng = np.random.default_rng(5)
    size = 37
    big = float(torch.finfo(TYPES[kind]).max) / 8
    small = 1e-45 if kind == "float32" else 5e-324
    normal = rng.normal(size=size)
    rows = [
        np.zeros(size),
        np.full(size, big),
        np.full(size, small),
        np.full(size, 1 / size**0.5),
        np.full(size, -1.0),
        np.where(np.arange(size) == 3, 1.0, 1e-9),
        np.where(np.arange(size) == 3, big, small),
        normal,
        normal * 1e-30,
        normal * 1e30,
        normal * (1 / np.linalg.norm(normal)),
        np.where(np.arange(size) == 36, np.nan, normal),
        np.where(np.arange(size) == 0, np.inf, 0.0),
        np.where(np.arange(size) == 5, -np.inf, np.inf),
    ]
    if kind == "float64":
        rows += [normal * 1e-300, normal * 1e300, normal * 2.0**-1040]
    return torch.tensor(np.array(rows), dtype=TYPES[kind])


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("clip", [1.0, 1e-3, 7e5])
def test_rows_are_the_clipped_ones_and_their_norms_are_exact(kind, clip):
    rows = hard_rows(kind)
    values = each(rows, clip=clip)
    real = rows.double().numpy()
    for row, value in zip(real, values.tolist(), strict=True):
        assert sum(x * x for x in value) <= GRID * GRID  # in Python's integers
        if not np.isfinite(row).all():
            assert not any(value)
            continue
        peak = np.abs(row).max()
        norm = peak * np.linalg.norm(row / peak) if peak else 0.0
        want = (row / norm if norm else row) * (GRID * min(norm, clip) / clip)
        assert np.abs(np.array(value) - want).max() <= most_error(37)


@pytest.mark.parametrize("kind", TYPES)
def test_a_row_is_the_same_beside_any_rows_in_any_place(kind):
    rows = hard_rows(kind)
    values = each(rows)
    order = torch.randperm(len(rows))
    assert torch.equal(each(rows[order]), values[order])
    for number in range(len(rows)):
        assert torch.equal(total(rows[number : number + 1]), values[number])
    assert torch.equal(total(torch.cat([rows, rows[:5]])), values.sum(0) + values[:5].sum(0))


def test_parts_blocks_and_the_cache_change_no_bit(monkeypatch):
    rows = torch.randn(5, 700) * torch.logspace(-3, 3, 5)[:, None]
    values = total(rows)
    assert torch.equal(total(rows, cuts=(1, 400)), values)
    for cache in (1, 100, 1500):
        monkeypatch.setattr(row_sums, "LIMITS", replace(row_sums.LIMITS, cpu_numbers=cache))
        assert torch.equal(total(rows, cuts=(17,)), values)


def test_the_law_is_that_of_the_other_clipping():
    rows = np.random.default_rng(3).standard_t(2, (50, 400))
    ours = each(torch.tensor(rows), clip=50.0).numpy()
    theirs = grid_rows(rows, 50.0, GRID, careful=True)
    assert np.abs(ours - theirs).max() <= most_error(400) + careful_error(400, GRID)
    short = np.linalg.norm(rows, axis=1) < 49.9
    assert 0 < short.sum() < 50
    assert np.array_equal(ours[short], theirs[short])


def test_long_rows_lose_little():
    size = (1 << 18) + 11
    rows = torch.randn(2, size)
    values = each(rows)
    norms = [sum(x * x for x in row) ** 0.5 / GRID for row in values.tolist()]
    assert all(0.998 < norm <= 1 for norm in norms)


@pytest.mark.parametrize("most", [*range(40, 60), 1 << 20, 1 << 24])
def test_no_row_is_lost_where_rounding_lengthens_all_entries(most):
    rows = torch.full((2, 30), 9.0, dtype=torch.float64)
    rows[1] = 1 + 0.49 * 2**-17  # the rough norm is too short
    for value in each(rows, most=most).tolist():
        assert (most - 10 - most * 1e-4) ** 2 <= sum(x * x for x in value) <= most**2


def test_a_row_that_comes_out_too_long_counts_as_zero(monkeypatch):
    wrong = torch.ones(3, dtype=torch.float64)
    monkeypatch.setattr(row_sums, "row_factors", lambda *_: wrong)
    rows = torch.tensor([[3.0, 4.0], [4.0, 4.0], [2.0**40, 0.0]])
    assert total(rows, most=5).tolist() == total(rows, most=5, cuts=(1,)).tolist() == [3, 4]


def test_sums_are_exact_beyond_the_precision_of_float32():
    rows = torch.tensor([[1.0, 0.0]] * 3000 + [[0.0, 1e-6]] * 3000)
    most = 1 << 24
    one = total(rows[:1], most=most)[0]
    other = total(rows[-1:], most=most)[1]
    assert total(rows, most=most).tolist() == [3000 * int(one), 3000 * int(other)]


def test_lines_of_a_table_are_added_where_their_tokens_are():
    """A gradient without a table per row has the norm of equal tokens together."""
    lines = torch.randn(4, 3, 2)
    tokens = torch.tensor([[0, 2, 2], [2, 2, 2], [1, 0, 4], [3, 2, 3]])
    table, weights = torch.zeros(5, 2, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    factors, bits = factors_of(torch.nn.Embedding(5, 2)), fine_bits(GRID, 4)
    add_rows((), [Product(factors, [(tokens, lines)], table, None)], weights, GRID, GRID, bits)
    want = torch.zeros(5, 2, dtype=torch.float64)
    for row, places in zip(lines.double(), tokens, strict=True):
        one = torch.zeros(5, 2, dtype=torch.float64).index_add_(0, places, row)
        want += one * (GRID / max(1.0, float(one.norm())))
    assert (table * 0.5**bits - want).abs().max() <= 4 * GRID * 3e-4
    assert not (table % 1).any()


def test_kernels_for_a_compiler_give_the_same_bits(monkeypatch):
    monkeypatch.setattr(row_sums, "_compile", lambda kernel: kernel)
    rows = torch.cat([hard_rows("float32"), torch.randn(3, 37)])
    for cuts in ((), (20,)):
        assert torch.equal(total(rows, cuts=cuts, compiled=True), total(rows))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch about itself
@pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler")
def test_compiled_kernels_give_the_same_bits():
    def kernels(rows, factors, short):
        return (
            row_sums._peak(rows),
            row_sums._integer_norms(rows, factors),
            row_sums._selection_sum(rows, factors, short),
        )

    rows, factors = torch.randn(5, 37), torch.rand(5, dtype=torch.float64) * GRID
    given = rows, factors, torch.tensor([True, False, True, True, False])
    for ours, theirs in zip(torch.compile(kernels)(*given), kernels(*given), strict=True):
        assert torch.equal(ours, theirs)


ROWS, PLACES, LINES, COLUMNS = 12, 5, 6, 7
BITS = fine_bits(GRID, ROWS)


def hard_products(seed=0):
    """Return factors that cancel, spike, vanish, overflow, or are not finite."""
    torch.manual_seed(seed)
    inputs = torch.randn(ROWS, PLACES, COLUMNS, dtype=torch.float64)
    outputs = torch.randn(ROWS, PLACES, LINES, dtype=torch.float64)
    inputs[1], outputs[1] = 1.0, 1.0 + 0.49 * 2**-17  # places agree, and rounding shortens
    inputs[2] = 1.0
    outputs[2] = torch.tensor([1.0, -1.0, 1.0, -1.0, 0.0])[:, None]  # they cancel
    outputs[3] = torch.where(outputs[3] == outputs[3].max(), outputs[3], 1e-9)
    inputs[3] = torch.where(inputs[3] == inputs[3].max(), inputs[3], 1e-9)
    inputs[4] *= 1e-200
    outputs[4] *= 1e150
    inputs[5] *= 1e-310
    outputs[5] *= 1e-310
    inputs[6], outputs[6] = 0.0, 1e300
    inputs[7] *= 1e200
    outputs[7] *= 1e-150
    inputs[8][0, 0] = torch.nan
    outputs[9][4, 5] = torch.inf
    outputs[10][3, 3] = -torch.inf
    outputs[11] *= 1e-5  # no longer than the clip
    return inputs, outputs


FACTORS = factors_of(torch.nn.Linear(COLUMNS, LINES))


def product_total(
    inputs, outputs, weights, *, dense=None, bias=False, scale=GRID, most=GRID, bits=BITS
):
    """Return the sums, in units of 2^-bits, and those of a part beside the product."""
    factors = factors_of(torch.nn.Linear(inputs.shape[2], outputs.shape[2]))
    sums = torch.zeros(factors.shape, dtype=torch.float64)
    ones = torch.zeros(len(sums), dtype=torch.float64) if bias else None
    parts = []
    if dense is not None:
        parts = [Written(dense, torch.zeros(dense.shape[1], dtype=torch.float64))]
    product = Product(factors, [(inputs, outputs)], sums, ones)
    add_rows(parts, [product], weights, scale, most, bits)
    if ones is not None:
        sums = torch.cat([sums, ones[:, None]], 1)
    return sums.to(torch.int64), parts[0].total.to(torch.int64) if parts else torch.zeros(0)


def one(number):
    return torch.eye(ROWS, dtype=torch.float64)[number]


@pytest.mark.parametrize("most", [1 << 12, GRID, 1 << 24])
@pytest.mark.parametrize("kind", [torch.float64, torch.float32])
def test_norms_in_whole_numbers_leave_room_for_the_last_rounding(most, kind):
    inputs, outputs = (x.to(kind) for x in hard_products())
    dense = torch.randn(ROWS, 9)
    bits = fine_bits(most, ROWS)
    limit = (most - (LINES * COLUMNS) ** 0.5) * 2**bits
    for number in range(ROWS):
        for beside, bias in ((None, False), (None, True), (dense, False)):
            sums, part = product_total(
                *(inputs, outputs, one(number)),
                dense=beside,
                bias=bias,
                scale=most,
                most=most,
                bits=bits,
            )
            squares = sum(x * x for x in sums.flatten().tolist())
            squares += sum((int(x) << bits) ** 2 for x in part.tolist())
            assert squares <= limit**2
            if number in (0, 1):
                assert squares >= (0.99 * limit) ** 2


def test_partial_sums_stay_below_the_precision_of_float64():
    inputs, outputs = hard_products()
    product = Product(FACTORS, [(inputs, outputs)], torch.zeros(LINES, COLUMNS), None)
    measured = row_sums._measure(product, slice(None), ROWS, BITS)
    for number in (0, 1, 2, 3, 11):
        factor = measured.most[number] * 2.0**BITS / measured.shift[number]
        size = torch.round(outputs[number] * factor).norm() * measured.columns[number].norm()
        assert 0 < size * ROWS <= 2**53


@pytest.mark.parametrize("number", [0, 1, 3, 11])
def test_the_sum_is_that_of_the_products(number):
    inputs, outputs = hard_products()
    ones = torch.ones(PLACES, 1, dtype=torch.float64)
    want = outputs[number].T @ torch.cat([inputs[number], ones], 1)
    want *= GRID / max(1.0, float(want.norm()))
    sums, _ = product_total(inputs, outputs, one(number), bias=True)
    # 14 bits of the largest input, and the margins.
    assert (sums * 0.5**BITS - want).abs().max() <= GRID * 3e-4


def test_products_that_cancel_or_are_not_finite_count_little_or_nothing():
    inputs, outputs = hard_products()
    for number in (2, 6, 8, 9, 10):
        sums, _ = product_total(inputs, outputs, one(number))
        assert sums.abs().max() <= 2**BITS if number == 2 else not sums.any()


def test_a_product_is_the_same_beside_any_rows_in_any_place():
    inputs, outputs = hard_products()
    each = [product_total(inputs, outputs, one(number))[0] for number in range(ROWS)]
    order = torch.randperm(ROWS)
    weights = torch.ones(ROWS, dtype=torch.float64)
    everyone, _ = product_total(inputs[order], outputs[order], weights)
    assert torch.equal(everyone, sum(each))
    for number in range(ROWS):
        others = torch.randn_like(inputs) * 1e3, torch.randn_like(outputs)
        others[0][number], others[1][number] = inputs[number], outputs[number]
        assert torch.equal(product_total(*others, one(number))[0], each[number])


def test_partial_sums_stay_exact_where_places_cancel():
    """All places but one cancel, so the factors are far longer than the gradient."""
    inputs = torch.full((ROWS, 400, 3), 1.0, dtype=torch.float64)
    outputs = torch.full((ROWS, 400, 2), 1.0, dtype=torch.float64)
    outputs[:, ::2] = -1.0
    outputs[:, 0] = 0.5
    sums, _ = product_total(inputs, outputs, torch.ones(ROWS, dtype=torch.float64))
    single, _ = product_total(inputs, outputs, one(0))
    assert torch.equal(sums, ROWS * single)
    assert math.sqrt(sum(x * x for x in single.flatten().tolist())) <= GRID * 2**BITS


@pytest.mark.parametrize(
    ("large", "small"), [(1e300, 0.0), (0.0, 1e300), (1e-320, 1e300), (1e300, 1e-320)]
)
def test_factors_at_the_ends_of_float64_leave_other_rows_alone(large, small):
    inputs, outputs = hard_products()
    weights = one(0) + one(11)
    want, _ = product_total(inputs, outputs, weights, scale=GRID * 1e9)
    inputs[4], outputs[4] = large, small
    with_row, _ = product_total(inputs, outputs, weights + one(4), scale=GRID * 1e9)
    row, _ = product_total(inputs, outputs, one(4), scale=GRID * 1e9)
    assert torch.equal(with_row - want, row)


def test_too_many_rows_for_a_fine_grid_are_refused():
    with pytest.raises(ValueError, match="too fine; take fewer rows"):
        fine_bits(1 << 24, 1 << 20)
