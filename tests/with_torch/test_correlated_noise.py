"""Correlated noise in the loops of networks: the distribution of the strategy, also after a
restart.
"""

import json
from fractions import Fraction

import numpy as np
import pytest
import torch

import neyman as ny
from neyman.mechanisms import square_root
from neyman.noise import SecureBits

pytestmark = pytest.mark.needs("release")
SIZE = 20_000
SPREAD = 2 * (15 / SIZE) ** 0.5 + 2 * 15 / SIZE  # Laurent and Massart: an alarm below 1e-6
STRATEGY = square_root(12, band=4)
MECHANISM = ny.DPSGD(40, 10, 3, 3, "cyclic", strategy=STRATEGY)
PLAN = ny.torch.TrainingPlan(MECHANISM, 2, grid=1 << 12, save_every=1, microbatch=16)


def network():
    model = torch.nn.Embedding(SIZE, 1)
    torch.nn.init.zeros_(model.weight)
    return model


def nothing(output, target):
    return output.sum() * 0


def trained(tmp_path, ledger, loss=nothing):
    """A run whose parameters are sums of noise alone, and their spread over sigma."""
    result = ny.torch.train(
        network(),
        loss,
        (torch.zeros(40, dtype=torch.int64), torch.zeros(40)),
        PLAN,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=10),
        ledger=ledger,
        dataset="toy@1",
        out=tmp_path / "out",
    )
    return result, np.mean(result.parameters.astype(float) ** 2) / MECHANISM.noise(2) ** 2


def books(tmp_path):
    ledger = ny.Ledger(tmp_path / "ledger.db")
    relation = {"neighboring": "replace-one", "currency": "renyi:8", "cap": 10**6}
    ledger.create("toy@1", protects="person", **relation)
    return ledger


def test_a_network_gets_the_noise_of_the_strategy(tmp_path):
    result, share = trained(tmp_path, books(tmp_path))
    row = np.linalg.solve(STRATEGY.matrix().T / 65536, np.ones(12))
    assert abs(share / (row @ row) - 1) < SPREAD
    assert result.problems() == []
    assert result.mechanism == MECHANISM


def test_a_killed_network_goes_on_with_an_empty_memory(tmp_path):
    left = [iter(range(16))]  # calls of dry runs and of some steps; a count would be seen

    def failing(output, target):
        if next(left[0], None) is None:
            raise KeyboardInterrupt
        return nothing(output, target)

    ledger = books(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, ledger, failing)
    left[0] = iter(range(1000))
    state = json.loads((tmp_path / "out/checkpoint.bin").read_bytes().partition(b"\n")[0])
    begun = state["begun"]
    assert 3 < begun < 9
    with pytest.warns(UserWarning, match=f"goes on with step {begun}"):
        result, share = trained(tmp_path, ledger, failing)
    matrix = STRATEGY.matrix() / 65536
    parts = (matrix[: begun - 1, : begun - 1], matrix[begun:, begun:])
    rows = np.concatenate([np.linalg.solve(part.T, np.ones(len(part))) for part in parts])
    assert abs(share / (rows @ rows) - 1) < SPREAD
    assert result.receipt["steps"] == {"run": 11, "lost": 1}


def test_a_loop_of_ones_own_gets_the_noise_of_the_strategy():
    model = network()
    gradient = ny.torch.NoisyGradient(model, nothing, PLAN)
    optimizer = torch.optim.SGD(model.parameters(), lr=10)
    for rows in MECHANISM.batches(40):
        gradient.add(torch.zeros(len(rows), dtype=torch.int64), torch.zeros(len(rows)))
        gradient.set()
        optimizer.step()
    share = np.mean(model.weight.detach().numpy().astype(float) ** 2) / MECHANISM.noise(2) ** 2
    row = np.linalg.solve(STRATEGY.matrix().T / 65536, np.ones(12))
    assert abs(share / (row @ row) - 1) < SPREAD
    gradient.close()


class Elsewhere(torch.Tensor):
    """A tensor whose copy on the processor has memory of its own, as that of a GPU."""

    def cpu(self):
        return self.as_subclass(torch.Tensor).clone()


@pytest.mark.parametrize("kind", [torch.Tensor, Elsewhere])
def test_noise_is_put_into_the_tensor(kind):
    noise = STRATEGY.noise(Fraction(6 << 28) ** 2, 50, SecureBits())
    total = torch.zeros(50, dtype=torch.int64).as_subclass(kind)
    noise.add(0, total)
    assert len(set(total.tolist())) > 40
    assert len(held := noise.memory._held) == 3
    assert (held[0] == -np.array(total.tolist())).all()
