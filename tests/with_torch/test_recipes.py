"""Recipes of training on tiny models: adapters, transfer, tables of numbers, and a search."""

import json
import secrets

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.optim.lr_scheduler import CosineAnnealingLR

import neyman as ny

pytestmark = pytest.mark.needs("release")
ROWS, CLASSES = 400, 3


def table():
    """Rows of 8 numbers whose first three decide the class, and public rows of the same kind."""
    x = torch.randn(ROWS + 200, 8, generator=torch.Generator().manual_seed(3))
    y = x[:, :CLASSES].argmax(1)
    return (x[:ROWS], y[:ROWS]), (x[ROWS:], y[ROWS:])


def accuracy(model, rows):
    x, y = rows
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def run(out, model, rows, epochs=8, **more):
    terms = {"epsilon": 8, "delta": 1e-5, "epochs": epochs, "batch": 100, **more}
    return ny.torch.train(model, nn.CrossEntropyLoss(), rows, out=out, **terms)


class Encoder(nn.Module):
    """A transformer of one layer, whose projections have names."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 16)
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
        self.head = nn.Linear(16, 2)

    def forward(self, tokens):
        x = self.words(tokens)
        mixed = functional.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x))
        return self.head((x + mixed).mean(1))


def test_adapters_of_peft_train_beside_a_frozen_transformer(tmp_path):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["query", "value"], modules_to_save=["head"])
    model = peft.get_peft_model(Encoder(), config)
    tokens = torch.randint(20, (ROWS, 6))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    trained = run(tmp_path / "out", model, (tokens, (tokens[:, 0] > 9).long()), epochs=1)
    moved = {k for k, p in model.named_parameters() if not torch.equal(p, before[k])}
    assert moved == {k for k, p in model.named_parameters() if p.requires_grad}
    assert {k.rpartition(".default")[0].rpartition(".")[2] for k in moved} >= {"lora_A", "lora_B"}
    assert trained.plan.mechanism.tradeoff().epsilon(1e-5).upper <= 8
    assert trained.parameters.size == sum(p.numel() for p in model.parameters() if p.requires_grad)


def test_a_head_trains_on_a_frozen_backbone(tmp_path):
    rows, public = table()
    backbone = nn.Sequential(nn.Linear(8, 32), nn.Tanh()).requires_grad_(False)
    model = nn.Sequential(backbone, nn.Linear(32, CLASSES))
    before = [p.clone() for p in backbone.parameters()]
    adam = {"optimizer": lambda parameters: torch.optim.Adam(parameters, lr=0.1)}
    run(tmp_path / "out", model, rows, **adam)
    assert all(map(torch.equal, before, backbone.parameters()))
    assert accuracy(model, public) > 0.75  # 25 runs: 0.93, with a deviation of 0.02


def test_a_table_of_numbers_trains_by_adam_and_a_schedule(tmp_path):
    rows, public = table()
    model = nn.Linear(8, CLASSES)
    trained = run(
        tmp_path / "out",
        model,
        rows,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.2),
        scheduler=lambda optimizer: CosineAnnealingLR(optimizer, 32),
    )
    assert "CosineAnnealingLR" in trained.receipt["terms"]["scheduler"]
    assert accuracy(model, public) > 0.75  # 25 runs: 0.95, with a deviation of 0.02


def test_a_search_is_charged_once_for_the_best_of_a_secret_number_of_runs(tmp_path):
    """As docs/howto/tuning.md says: one charge before the first run, and one winner."""
    rows, public = table()
    plan = ny.torch.TrainingPlan.reaching(2, 1e-5, n=ROWS, batch=100, epochs=2)
    law = ny.Runs.geometric(mean=2)
    best = ny.select_best(plan.mechanism, runs=law)
    epsilon = best.tradeoff().epsilon(1e-5).upper
    assert plan.mechanism.tradeoff().epsilon(1e-5).upper < epsilon < 2 * 2
    ledger = ny.Ledger(tmp_path / "ledger.db")
    unit = {"protects": "person", "neighboring": "add-remove"}
    ledger.create("table@1", **unit, currency="pure", cap=3, delta_cap="1e-4")
    charged = [{"mechanism": best.to_dict(), "count": 1}]
    entry = ledger.reserve(
        "table@1", **unit, rows=1, key="search", charge=epsilon, delta="1e-5", mechanisms=charged,
        plan=json.dumps(plan.to_dict()),
    )  # fmt: skip
    ledger.begin(entry)
    winner, score = None, -1.0
    for number in range(law.draw()):  # keep this number secret
        rate, model = secrets.choice([0.01, 0.1, 0.5]), nn.Linear(8, CLASSES)
        own = ny.throwaway(10**5, currency="renyi:8")
        own.register("table@1", **unit, rows=1)
        ny.torch.train(
            model,
            nn.CrossEntropyLoss(),
            rows,
            plan,
            optimizer=lambda parameters, rate=rate: torch.optim.Adam(parameters, lr=rate),
            ledger=own,
            dataset="table@1",
            out=tmp_path / str(number),
        )
        if accuracy(model, public) > score:
            winner, score = model, accuracy(model, public)
    assert winner is not None
    assert float(ledger.account("table@1").spent) == pytest.approx(epsilon)
