"""Canaries in networks, on digits: broken loops are refuted, and a right one is not accused."""

import dataclasses
import runpy
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
import torch
from opacus import PrivacyEngine
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import neyman as ny
from canary_scores import CLAIM, LEVEL, MIDDLE, ROWS, SIGMA, of_canary, of_noise, scores

pytestmark = pytest.mark.filterwarnings("ignore")
IMAGES, DIGITS = load_digits(return_X_y=True)
X = torch.tensor(IMAGES[:ROWS] / 16, dtype=torch.float32)
Y = torch.tensor(DIGITS[:ROWS])


class WithCanaries(torch.nn.Module):
    """A classifier, and a layer for canaries."""

    def __init__(self, width):
        super().__init__()
        self.model = torch.nn.Linear(64, 10)
        self.further = torch.nn.Linear(width, 1, bias=False)
        torch.nn.init.zeros_(self.further.weight)

    def forward(self, x):
        return self.model(x[:, :64]), self.further(x[:, 64:])[:, 0]


def no_noise(optimizer):
    optimizer.noise_multiplier = 0.0


def half_the_noise(optimizer):
    optimizer.noise_multiplier /= 2


def no_clipping(optimizer):
    """The noise stays."""
    optimizer.noise_multiplier *= optimizer.max_grad_norm / 1e6
    optimizer.max_grad_norm = 1e6


def realized_batch(optimizer):
    scale = optimizer.scale_grad

    def scaled():
        optimizer.expected_batch_size = len(optimizer.grad_samples[0])
        scale()

    optimizer.scale_grad = scaled


def as_it_comes(optimizer):
    """Opacus divides by the actual number of rows times the rate."""


def declared(optimizer):
    optimizer.expected_batch_size = ROWS


def trained(change, canaries):
    """One step of Opacus, and the weights of the canaries' layer."""
    rows = torch.tensor(canaries.gradients(), dtype=torch.float32)
    real = torch.cat([X, torch.zeros(ROWS, canaries.width)], dim=1)
    x = torch.cat([real, torch.cat([torch.zeros(len(rows), 64), rows], dim=1)])
    data = TensorDataset(x, torch.cat([Y, torch.zeros(len(rows), dtype=torch.long)]))
    module = WithCanaries(canaries.width)
    module, optimizer, loader = PrivacyEngine(accountant="rdp").make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
        data_loader=DataLoader(data, batch_size=len(data)),
        noise_multiplier=SIGMA,
        max_grad_norm=1.0,
    )
    if change is not as_it_comes:
        declared(optimizer)
    change(optimizer)
    for inputs, labels in loader:
        optimizer.zero_grad()
        answers, canary = module(inputs)
        loss = torch.nn.functional.cross_entropy(answers, labels, reduction="none")
        torch.where(inputs[:, 64:].any(dim=1), canary, loss).mean().backward()
        optimizer.step()
    return module.further.weight.detach().numpy()


@pytest.mark.parametrize(
    ("fault", "runs", "score", "threshold"),
    [
        (no_noise, 12, of_canary, MIDDLE),
        (no_clipping, 20, of_canary, 10 * MIDDLE),
        (realized_batch, 40, of_noise, LEVEL),
        (as_it_comes, 40, of_noise, LEVEL),
        (half_the_noise, 200, of_canary, MIDDLE),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_loop_is_refuted_by_many_runs(fault, runs, score, threshold):
    shown = ny.audit.scores(*scores(partial(trained, fault), runs, score), threshold=threshold)
    assert shown.refutes(CLAIM), shown


@pytest.mark.parametrize(("score", "threshold"), [(of_canary, MIDDLE), (of_noise, LEVEL)])
def test_opacus_with_a_declared_divisor_is_not_accused(score, threshold):
    sides = scores(partial(trained, declared), 100, score)
    for at in (threshold, "all"):
        shown = ny.audit.scores(*sides, threshold=at, confidence="0.9999999")
        assert not shown.refutes(CLAIM), shown


def test_one_run_with_many_canaries():
    canaries = ny.audit.canaries(200, norm=10)
    assert not canaries.one_run(trained(declared, canaries), confidence="0.9999999").refutes(CLAIM)
    for fault, guesses in [(no_noise, 120), (no_clipping, 120), (half_the_noise, None)]:
        shown = canaries.one_run(trained(fault, canaries), guesses=guesses)
        assert shown.refutes(CLAIM) == bool(guesses), shown


@pytest.mark.parametrize("loop", ["by_neyman", "by_opacus"])
def test_one_run_of_exact_steps_with_a_thousand_canaries_is_between_its_two_curves(loop, tmp_path):
    example = runpy.run_path(Path(__file__).parents[2] / "examples/network_canaries.py")
    at_most, shown, accuracy = example["audit"](example[loop], 1000, sigma=1, batches=2, epochs=5)
    assert accuracy > 0.2  # of ten digits; six runs had 0.48 to 0.83
    evidence = dataclasses.replace(shown, confidence=Fraction(9999999, 10**7))
    assert not evidence.refutes(at_most)
    assert evidence.refutes(ny.Gaussian(20).subsample(rate=0.5) * 10)
    shown.figure(at_most).figure.savefig(tmp_path / "audit.svg")
    for level in (0.01, 0.1, 0.5):
        assert level < shown.power_at_least(level) < at_most.power(level).lower
