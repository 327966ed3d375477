"""Products that stand for gradients: exact norms and sums, and no row that depends on another."""

import math

import pytest
import torch

from neyman.analysis.training import device_products
from neyman.analysis.training.device_clipping import ClippedPart
from neyman.analysis.training.device_products import Product, add_products, fine_bits

GRID = 1 << 20
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


def total(inputs, outputs, weights, *, dense=None, scale=GRID, most=GRID, bits=BITS):
    """Return the sums, in units of 2^-bits, and those of a part beside the product."""
    sums = torch.zeros(outputs.shape[2], inputs.shape[2], dtype=torch.int64)
    parts = []
    if dense is not None:
        parts = [ClippedPart(dense, torch.zeros(dense.shape[1], dtype=torch.float64))]
    add_products(parts, [Product(inputs, outputs, sums)], weights, scale, most, bits)
    return sums, parts[0].total.to(torch.int64) if parts else torch.zeros(0, dtype=torch.int64)


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
        for beside in (None, dense):
            sums, part = total(
                inputs, outputs, one(number), dense=beside, scale=most, most=most, bits=bits
            )
            squares = sum(x * x for x in sums.flatten().tolist())
            squares += sum((x << bits) ** 2 for x in part.tolist())
            assert squares <= limit**2
            if number in (0, 1):
                assert squares >= (0.99 * limit) ** 2


def test_partial_sums_stay_below_the_precision_of_float64():
    inputs, outputs = hard_products()
    measured = device_products._measure_norm(
        Product(inputs, outputs, torch.zeros(LINES, COLUMNS, dtype=torch.int64)), BITS
    )
    for number in (0, 1, 2, 3, 11):
        factor = measured.most[number] * 2.0**BITS / measured.shift[number]
        size = (
            torch.round(outputs[number] * factor).norm() * measured.inputs[number].double().norm()
        )
        assert 0 < size * ROWS <= 2**53


@pytest.mark.parametrize("number", [0, 1, 3, 11])
def test_the_sum_is_that_of_the_products(number):
    inputs, outputs = hard_products()
    want = outputs[number].T @ inputs[number]
    want *= GRID / max(1.0, float(want.norm()))
    sums, _ = total(inputs, outputs, one(number))
    # 14 bits of the largest input, and the margins.
    assert (sums * 0.5**BITS - want).abs().max() <= GRID * 3e-4


def test_products_that_cancel_or_are_not_finite_count_little_or_nothing():
    inputs, outputs = hard_products()
    for number in (2, 6, 8, 9, 10):
        sums, _ = total(inputs, outputs, one(number))
        assert sums.abs().max() <= 2**BITS if number == 2 else not sums.any()


def test_a_row_is_the_same_beside_any_rows_in_any_place():
    inputs, outputs = hard_products()
    each = [total(inputs, outputs, one(number))[0] for number in range(ROWS)]
    order = torch.randperm(ROWS)
    weights = torch.ones(ROWS, dtype=torch.float64)
    everyone, _ = total(inputs[order], outputs[order], weights)
    assert torch.equal(everyone, sum(each))
    for number in range(ROWS):
        others = torch.randn_like(inputs) * 1e3, torch.randn_like(outputs)
        others[0][number], others[1][number] = inputs[number], outputs[number]
        assert torch.equal(total(*others, one(number))[0], each[number])


def test_partial_sums_stay_exact_where_places_cancel():
    """All places but one cancel, so the factors are far longer than the gradient."""
    inputs = torch.full((ROWS, 400, 3), 1.0, dtype=torch.float64)
    outputs = torch.full((ROWS, 400, 2), 1.0, dtype=torch.float64)
    outputs[:, ::2] = -1.0
    outputs[:, 0] = 0.5
    sums, _ = total(inputs, outputs, torch.ones(ROWS, dtype=torch.float64))
    single, _ = total(inputs, outputs, one(0))
    assert torch.equal(sums, ROWS * single)
    assert math.sqrt(sum(x * x for x in single.flatten().tolist())) <= GRID * 2**BITS


@pytest.mark.parametrize(
    ("large", "small"), [(1e300, 0.0), (0.0, 1e300), (1e-320, 1e300), (1e300, 1e-320)]
)
def test_factors_at_the_ends_of_float64_leave_other_rows_alone(large, small):
    inputs, outputs = hard_products()
    weights = one(0) + one(11)
    want, _ = total(inputs, outputs, weights, scale=GRID * 1e9)
    inputs[4], outputs[4] = large, small
    with_row, _ = total(inputs, outputs, weights + one(4), scale=GRID * 1e9)
    row, _ = total(inputs, outputs, one(4), scale=GRID * 1e9)
    assert torch.equal(with_row - want, row)


def test_too_many_rows_for_a_fine_grid_are_refused():
    with pytest.raises(ValueError, match="too fine for fast=True"):
        fine_bits(1 << 24, 1 << 20)
