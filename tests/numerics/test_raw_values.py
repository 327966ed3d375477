"""No entry of private data raises an error, changes how another is read, or is shown."""

import warnings
from collections import deque
from decimal import Decimal

import numpy as np
import pytest

from neyman.numerics import as_floats, one_per_record, vectors


class Hostile:
    def __float__(self):
        raise RuntimeError("secret 42")

    def __iter__(self):
        raise RuntimeError("secret 43")


ENTRIES = [1.5, "2", None, 1j, np.complex128(1j), 10**400, -(10**400), Decimal("NaN"), [3.0], {}]
READ = [1.5, 2.0, np.nan, np.nan, np.nan, np.inf, -np.inf, np.nan, np.nan, np.nan]


@pytest.mark.parametrize("kind", [list, tuple, deque])
def test_each_entry_is_read_by_itself(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = as_floats(one_per_record("values", kind([*ENTRIES, Hostile()]), relation="any"))
    np.testing.assert_array_equal(read, [*READ, np.nan])


@pytest.mark.parametrize("other", [None, 3.0, "ab", {}, Hostile(), (1.0,), (1.0, 2.0, 3.0), 1j])
def test_a_record_of_another_form_is_no_number_and_leaves_the_others_alone(other):
    rows = [(1.0, 2.0), other, (1.0, [2.0])]
    read = vectors("rows", rows, relation="replace-one", dimension=2)
    np.testing.assert_array_equal(read, [[1, 2], [np.nan, np.nan], [1, np.nan]])


def test_no_rows_are_read_as_an_empty_table():
    assert vectors("rows", np.empty((0, 2)), relation="add-remove").shape == (0, 2)
