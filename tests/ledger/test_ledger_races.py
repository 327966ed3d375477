"""Processes race for the last of a budget, on either store: what there is, is granted, once."""

from __future__ import annotations

import os
from fractions import Fraction

import pytest

from attacks import SIZE
from ledger_entries import NAME, UNIT, reserve
from neyman import Ledger
from neyman.ledger import BudgetRefused

GRANTED = 60 * SIZE - 1


def reserve_all(place: str, worker: int, say: int) -> None:
    """Reserve until there is nothing left, saying the number of each entry that was granted."""
    with Ledger(place, wait=120) as ledger:
        for number in range(GRANTED + 1):
            try:
                entry = reserve(ledger, "1/3", f"{worker}-{number}")
            except BudgetRefused:
                return
            os.write(say, f"{entry.id}\n".encode())


@pytest.mark.parametrize("processes", [2, 3, 5, 8, 16])
def test_racing_processes_are_granted_all_and_no_more(place: str, processes: int, attempts):
    attempts(processes + GRANTED)
    with Ledger(place) as ledger:
        ledger.create(NAME, cap=20 * SIZE - Fraction(1, 10), **UNIT)
    reading, writing = os.pipe()
    children = []
    for worker in range(processes):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(reading)
                reserve_all(place, worker, writing)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    os.close(writing)
    with os.fdopen(reading) as stream:
        said = [int(line) for line in stream]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * processes
    with Ledger(place) as ledger:
        granted = list(range(1, GRANTED + 1))
        assert sorted(said) == [entry.id for entry in ledger.entries(NAME)] == granted
        assert ledger.account(NAME).spent * 3 == GRANTED
        assert ledger.verify().ok
