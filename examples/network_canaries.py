"""Audit the training of a network by one run with 10,000 canaries, in two loops.

The black line is the certified curve, and one run proves that the true curve is in the shaded
region. It takes 30 seconds of one core, and needs
neyman[opacus,release] and scikit-learn. The argument is the folder for the figure.
"""

import sys
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path

if not find_spec("opacus"):
    print("pip install 'neyman[opacus,release]'")
    sys.exit()
warnings.simplefilter("ignore")  # of Opacus, about hooks

import torch
from opacus import PrivacyEngine
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset

import neyman as ny
from neyman.opacus import make_exact

CANARY = -1  # the target of a canary


class Rows(Dataset):
    """Digits, and canaries: rows that move one weight of a layer of their own."""

    def __init__(self, canaries):
        images, digits = load_digits(return_X_y=True)
        self.images = torch.tensor(images / 16, dtype=torch.float32)
        self.digits = torch.tensor(digits)
        self.canaries = canaries

    def __len__(self):
        return len(self.images) + self.canaries.rows

    def __getitem__(self, row):
        own = row - len(self.images)
        if own < 0:
            return self.images[row], torch.zeros(self.canaries.width), self.digits[row]
        gradient = torch.tensor(self.canaries.gradients([own])[0], dtype=torch.float32)
        return torch.zeros(64), gradient, torch.tensor(CANARY)


class Network(torch.nn.Module):
    """A classifier of digits, beside the weights of the canaries."""

    def __init__(self, width):
        super().__init__()
        self.model = torch.nn.Sequential(
            torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10)
        )
        self.further = torch.nn.Linear(width, 1, bias=False)
        torch.nn.init.zeros_(self.further.weight)

    def forward(self, images, gradients):
        return self.model(images), self.further(gradients)[:, 0]

    def accuracy(self, rows):
        """Return the accuracy on real rows."""
        return (self.model(rows.images).argmax(1) == rows.digits).float().mean().item()


def loss(output, target):
    """Return the loss of a digit, or what gives a canary its gradient."""
    scores, canary = output
    own = torch.nn.functional.cross_entropy(scores, target.clamp(min=0), reduction="none")
    return torch.where(target == CANARY, canary, own).mean()


def by_opacus(canaries, network, rows, mechanism):
    """Train by Opacus with exact noise; return the certified curve."""
    module, optimizer, loader = PrivacyEngine(accountant="neyman").make_private(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=8.0),
        data_loader=DataLoader(rows, batch_size=mechanism.batch),
        noise_multiplier=float(mechanism.sigma),
        max_grad_norm=1.0,
    )

    def batch_loss(model, batch):
        *inputs, target = batch
        return loss(model(*inputs), target)

    accountant = make_exact(module, optimizer, loader, batch_loss, physical_batch_size=256)
    for _ in range(mechanism.epochs):
        for batch in loader:
            optimizer.zero_grad()
            batch_loss(module, batch).backward()
            optimizer.step()
    assert accountant.exact
    return accountant.tradeoff()


def by_neyman(canaries, network, rows, mechanism):
    """Train by `ny.torch.train`; return the certified curve."""
    ledger = ny.throwaway(10**6, currency="renyi:8")
    ledger.register("digits@1", protects="image", neighboring="add-remove", rows=1)
    with tempfile.TemporaryDirectory() as folder:
        trained = ny.torch.train(
            network,
            loss,
            rows,
            ny.torch.TrainingPlan(mechanism, microbatch=256),
            example=(torch.zeros(64), torch.zeros(canaries.width), torch.tensor(0)),
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=8.0),
            ledger=ledger,
            dataset="digits@1",
            out=Path(folder) / "out",
        )
    return trained.tradeoff()


def audit(train, count, *, sigma=2, batches=4, epochs=10):
    """Train with canaries; return the certified curve, the evidence, and the accuracy."""
    canaries = ny.audit.canaries(count, norm=10, silent=0)
    rows, network = Rows(canaries), Network(canaries.width)
    batch = -(-len(rows) // batches)
    curve = train(canaries, network, rows, ny.DPSGD(len(rows), batch, sigma, epochs))
    shown = canaries.one_run(network.further.weight.detach().numpy())
    return curve, shown, network.accuracy(rows)


if __name__ == "__main__":
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 5))
    loops = {"ny.torch.train": by_neyman, "Opacus after make_exact": by_opacus}
    for (name, train), place in zip(loops.items(), axes, strict=True):
        curve, shown, accuracy = audit(train, 10_000)
        print(f"{name}: epsilon {curve.epsilon(delta=1e-5)}, accuracy {accuracy:.2f}; {shown}")
        shown.figure(curve, axes=place).set_title(name)
    figure.tight_layout()
    figure.savefig(Path(*sys.argv[1:]) / "network-canaries.svg")
