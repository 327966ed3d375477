"""Processes that share a batch have the sum of one process to the last bit, and end together."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from queue import Queue

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import Dataset

import neyman as ny

pytestmark = pytest.mark.needs("release")
ROWS = 200
SPAWN = torch.multiprocessing.get_context("spawn")
# The noise of 0.1 grid units rounds to 0, but once in 10^5 runs.
PLAN = ny.torch.TrainingPlan(
    ny.DPSGD(n=ROWS, batch=ROWS, sigma=0.0015, epochs=2), grid=64, microbatch=32, save_every=1
)


class Rows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Rows of which one kills its process, if ``last`` are read."""

    def __init__(self, last: int | None = None) -> None:
        torch.manual_seed(3)
        self.x, self.last = torch.randn(ROWS, 3), last

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.last is not None:
            self.last -= 1
            if self.last < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.x[row], self.x[row].sum()[None]


def network(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))


def work(rank: int, plan: ny.torch.TrainingPlan, folder: Path, last: int | None, results) -> None:
    """Take part in a run. Put the error or the parameters, and the conditions of the receipt."""
    torch.set_num_threads(1)
    try:
        if plan.processes > 1:
            address = f"file://{folder}/{plan.processes}"
            dist.init_process_group("gloo", address, rank=rank, world_size=plan.processes)
        # Each process has other first values: the leader's count.
        model, loss, conditions = network(rank), torch.nn.MSELoss(), ()
        example = (torch.zeros(3), torch.zeros(1))
        if rank:
            ny.torch.serve(model, loss, Rows(last), plan, example=example)
        else:
            trained = ny.torch.train(
                model, loss, Rows(), plan, example=example,
                optimizer=lambda p: torch.optim.SGD(p, lr=0.5),
                out=folder / "out", ledger=folder / "ledger.db", dataset="toy@1",
            )  # fmt: skip
            conditions = trained.receipt["conditions"]
        results.put((rank, [p.tolist() for p in model.parameters()], conditions))
    except Exception as error:
        results.put((rank, f"{type(error).__name__}: {error}", ()))


def run(plan: ny.torch.TrainingPlan, folder: Path, last: int | None = None, plans=None):
    """The result of each process that is not killed, by its rank."""
    if plan.processes == 1:
        here: Queue[tuple] = Queue()
        work(0, plan, folder, last, here)
        rank, *answer = here.get()
        return {rank: tuple(answer)}
    results = SPAWN.Queue()
    given = plans or [plan] * plan.processes
    crew = [
        SPAWN.Process(target=work, args=(rank, given[rank], folder, last, results))
        for rank in range(plan.processes)
    ]
    for one in crew:
        one.start()
    answers = [results.get(timeout=120) for _ in range(plan.processes - (last is not None))]
    for one in crew:
        one.join(60)
    return {rank: (result, conditions) for rank, result, conditions in answers}


def ledger(folder: Path, cap: int = 10**6) -> ny.Ledger:
    folder.mkdir(exist_ok=True)
    book = ny.Ledger(folder / "ledger.db")
    terms = {"protects": "row", "neighboring": "add-remove", "currency": "renyi:2"}
    book.create("toy@1", cap=cap, **terms)
    return book


def test_two_and_four_processes_have_the_result_of_one(tmp_path):
    single = tmp_path / "1"
    ledger(single)
    alone, conditions = run(PLAN, single)[0]
    assert not any("connections" in text for text in conditions)
    for number in (2, 4):
        folder = tmp_path / str(number)
        ledger(folder)
        answers = run(replace(PLAN, processes=number), folder)
        assert [answers[rank][0] for rank in range(number)] == [alone] * number
        assert f"Up to {number} processes shared each batch" in " ".join(answers[0][1])


def test_a_process_that_dies_ends_the_run_and_one_charge_pays_for_all_of_it(tmp_path):
    book, first = ledger(tmp_path), 32 * 3 + 8  # this process's rows of a step
    answers = run(replace(PLAN, processes=2), tmp_path, last=first + 10)
    assert set(answers) == {0}
    assert answers[0][0].startswith("ChargedError: ")
    assert "a process of the run ended" in answers[0][0]
    charged = book.account("toy@1").spent
    result, conditions = run(PLAN, tmp_path)[0]
    assert isinstance(result, list)
    assert "Up to 2 processes shared each batch" in " ".join(conditions)
    assert book.account("toy@1").spent == charged > 0


def test_a_run_that_the_budget_refuses_ends_in_every_process(tmp_path):
    book = ledger(tmp_path, cap=1)
    answers = run(replace(PLAN, processes=2), tmp_path)
    assert answers[0][0].startswith("BudgetRefused: ")
    assert answers[1][0] == "RuntimeError: process 0 did not begin the run, and says why"
    assert not book.account("toy@1").spent


def test_processes_that_differ_are_refused_before_the_charge(tmp_path):
    book, two = ledger(tmp_path), replace(PLAN, processes=2)
    answers = run(two, tmp_path, plans=[two, replace(two, clip=2)])
    for rank in (0, 1):
        assert "another model, loss, plan, or number of rows" in answers[rank][0]
    assert not book.account("toy@1").spent


def test_a_group_that_does_not_fit_the_plan_is_refused(tmp_path):
    model, data = network(0), (torch.zeros(ROWS, 3), torch.zeros(ROWS, 1))
    two = replace(PLAN, processes=2)
    with pytest.raises(ValueError, match=r"torch\.distributed has no group: call"):
        ny.torch.serve(model, torch.nn.MSELoss(), data, two)
    dist.init_process_group("gloo", f"file://{tmp_path}/one", rank=0, world_size=1)
    try:
        with pytest.raises(ValueError, match="has 1 processes: make them equal"):
            ny.torch.serve(model, torch.nn.MSELoss(), data, two)
    finally:
        dist.destroy_process_group()
