"""The error of a table, read in parts, is that of the table in memory."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neyman.display.report import table_accuracy as module
from neyman.display.report.table_accuracy import accuracy, median
from random_laws import examples

NUMBERS = st.one_of(st.integers(-3, 3), st.integers(-(2**62), 2**62), st.floats(-1e300, 1e300)).map(
    float
)


@settings(max_examples=examples(600))
@given(st.lists(st.lists(NUMBERS, max_size=8), max_size=8).filter(any))
def test_the_median_of_parts_is_the_median_of_all(parts):
    arrays = [np.array(part, dtype=float) for part in parts]
    everything = np.sort(np.concatenate(arrays))
    assert median(lambda: iter(arrays)) == np.median(everything)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LIMITS", replace(module.LIMITS, sorted_cells=1, bins=4))
        assert median(lambda: iter(arrays)) == everything[(len(everything) - 1) // 2]


def test_a_file_has_the_accuracy_of_its_table(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LIMITS", replace(module.LIMITS, part_cells=100))
    value = np.arange(1000) - 10
    table = pa.table({"value": value, "lower": value - 4, "upper": value + 4})
    pq.write_table(table, tmp_path / "t.parquet")
    file = pq.ParquetFile(tmp_path / "t.parquet")
    result = accuracy(file, (0.01, 0.05))
    assert result == accuracy(table, (0.01, 0.05))
    assert result is not None
    assert (result.value, result.margin) == (489.5, 4.0)
    close = [int(np.sum(p * abs(value) > 4)) for p in (0.01, 0.05)]
    assert [share * 1000 for share in result.within] == close
    assert accuracy(table.slice(0, 0), (0.01,)) is None
