"""Time a step of private training on one CPU core beside Opacus, and print the table.

python benchmarks/private_steps.py            # all rows: 5 minutes
python benchmarks/private_steps.py "CNN, 256" # the rows that are named

Each cell is a process of its own: the least CPU time of some steps in milliseconds, and the peak of
its memory over that of the loaded libraries in MiB. Our steps have the default settings.
"""

import json
import resource
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from benchmarks.gpu import (
    Block,
    convolutions,
    exact_step,
    linear_layers,
    opacus_step,
    plain_step,
    quiet,
)

SECONDS = 3.0  # of steps in a cell
LEAST_RUNS = 4
TIMES_OPACUS = 1.5  # most, of the faster mode of Opacus


class Words(nn.Module):
    """A classifier by the mean of the embeddings of words."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(2000, 64), nn.Linear(64, 10)

    def forward(self, tokens):
        return self.head(self.words(tokens).mean(1))


class Attention(nn.Module):
    """A classifier by one block of a transformer."""

    def __init__(self):
        super().__init__()
        self.block, self.head = Block(64), nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.block(x).mean(1))


def perceptron():
    """Return three linear layers: 33,738 parameters."""
    parts = nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64), nn.Tanh(), nn.Linear(64, 10)
    return nn.Sequential(*parts)


class Row(NamedTuple):
    """A model, and inputs of a batch."""

    network: object
    inputs: object
    rows: int


ROWS = {
    "MLP, 256": Row(perceptron, lambda n: torch.rand(n, 64), 256),
    "MLP, 1024": Row(perceptron, lambda n: torch.rand(n, 64), 1024),
    "CNN, 256": Row(convolutions, lambda n: torch.rand(n, 1, 8, 8), 256),
    "CNN, 1024": Row(convolutions, lambda n: torch.rand(n, 1, 8, 8), 1024),
    "wide, 256": Row(linear_layers, lambda n: torch.rand(n, 784), 256),
    "block, 256": Row(Attention, lambda n: torch.rand(n, 8, 64), 256),
    "embedding, 256": Row(Words, lambda n: torch.randint(2000, (n, 16)), 256),
}


@contextmanager
def ghost_step(model, loss, x, y):
    """Yield a step of Opacus with ghost clipping and float noise."""
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    module = GradSampleModuleFastGradientClipping(model, max_grad_norm=1.0, use_ghost_clipping=True)
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(module.parameters(), lr=0.01),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        expected_batch_size=len(x),
    )
    clipped = DPLossFastGradientClipping(module, optimizer, nn.CrossEntropyLoss())

    def step():
        optimizer.zero_grad()
        clipped(module(x), y).backward()
        optimizer.step()

    yield step


LOOPS = {
    "torch": plain_step,
    "Opacus, hooks": opacus_step,
    "Opacus, ghost": ghost_step,
    "ours": exact_step(),
}


def peak():
    """Return the largest memory that the process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def cell(row, loop):
    """Return the milliseconds and the memory of a step."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network, inputs, count = ROWS[row]
    model, x, y = network(), inputs(count), torch.randint(10, (count,))
    before, times = peak(), []
    with quiet(), LOOPS[loop](model, functional.cross_entropy, x, y) as step:
        step()
        torch.seed()
        begun = time.process_time()
        while len(times) < LEAST_RUNS or time.process_time() < begun + SECONDS:
            start = time.process_time()
            step()
            times.append(time.process_time() - start)
    return {"ms": 1000 * min(times), "MiB": peak() - before}


def main(names):
    """Print the table."""
    print(f"torch {torch.__version__}, {len(names)} rows, one thread")
    head = ["model, batch", *LOOPS, "ours / faster Opacus", *(f"{loop}, MiB" for loop in LOOPS)]
    print(f"| {' | '.join(head)} |\n| --- |{' ---: |' * (len(head) - 1)}")
    for row in names:
        cells = {}
        for loop in LOOPS:
            given = [sys.executable, __file__, "--cell", row, loop]
            done = subprocess.run(given, capture_output=True, text=True, check=False)
            cells[loop] = json.loads(done.stdout) if done.returncode == 0 else None
            if done.returncode:
                print(done.stderr[-2000:], file=sys.stderr)
        times = {loop: one["ms"] for loop, one in cells.items() if one}
        opacus = min(times.get("Opacus, hooks", 1e9), times.get("Opacus, ghost", 1e9))
        shown = [f"{times[loop]:.1f}" if loop in times else "-" for loop in LOOPS]
        ratio = f"{times['ours'] / opacus:.2f}" if "ours" in times else "-"
        sizes = [f"{one['MiB']:.0f}" if one else "-" for one in cells.values()]
        print(f"| {' | '.join([row, *shown, ratio, *sizes])} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--cell"]:
        print(json.dumps(cell(*sys.argv[2:4])))
    else:
        main(sys.argv[1:] or [*ROWS])
