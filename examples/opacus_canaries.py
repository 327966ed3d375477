"""Audit Opacus by one run with 10,000 canaries: the certified curve above, and the evidence below.

It takes 12 seconds of one core, and needs neyman[opacus,release] and scikit-learn. The argument
is the folder for the figure.
"""

import sys
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
            return self.images[row], torch.zeros(self.canaries.width), self.digits[row], False
        gradient = torch.tensor(self.canaries.gradients([own])[0], dtype=torch.float32)
        return torch.zeros(64), gradient, self.digits[0], True


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


def audit(count, *, sigma=2.0, batches=4, epochs=10, size=256):
    """Train with canaries; return the accountant, the evidence, and the accuracy on real rows."""
    canaries = ny.audit.canaries(count, norm=10, silent=0)
    rows, network = Rows(canaries), Network(canaries.width)
    engine = PrivacyEngine(accountant="neyman")
    module, optimizer, loader = engine.make_private(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=8.0),
        data_loader=DataLoader(rows, batch_size=-(-len(rows) // batches)),
        noise_multiplier=sigma,
        max_grad_norm=1.0,
    )
    accountant = make_exact(module, optimizer, loader, physical_batch_size=size)
    for _ in range(epochs):
        for images, gradients, digits, own in loader:
            optimizer.zero_grad()
            scores, canary = module(images, gradients)
            loss = torch.nn.functional.cross_entropy(scores, digits, reduction="none")
            torch.where(own, canary, loss).mean().backward()
            optimizer.step()
    guesses = network.model(rows.images).argmax(1)
    accuracy = (guesses == rows.digits).float().mean().item()
    return accountant, canaries.one_run(network.further.weight.detach().numpy()), accuracy


if __name__ == "__main__":
    accountant, shown, accuracy = audit(10_000)
    print(accountant)
    print(f"accuracy {accuracy:.2f}; {shown}")
    figure = shown.figure(accountant.tradeoff()).figure
    figure.savefig(Path(*sys.argv[1:]) / "opacus-canaries.svg")
