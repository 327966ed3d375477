"""The sections of `benchmarks/gpu.py` about training, on small sizes."""

import pytest
import torch

from benchmarks import gpu

CPU = gpu.Setting(torch.device("cpu"), 1)


def test_the_transformer_has_the_size_of_the_goals():
    with torch.device("meta"):
        model = gpu.Transformer(gpu.Sizes())
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 1) == 27.6
    assert gpu.transformer_step(CPU) == {"all": "not measured: no CUDA device"}


@pytest.mark.filterwarnings("ignore")
def test_every_step_of_a_small_transformer_is_measured(monkeypatch):
    steps = {name: step for name, step in gpu.TRANSFORMER_STEPS.items() if "compiled" not in name}
    monkeypatch.setattr(gpu, "TRANSFORMER_STEPS", steps)
    monkeypatch.setattr(gpu, "RUNS", 1)
    results = gpu.transformer_step(CPU, gpu.Sizes(1, 64, 30, 16, 4, 8))
    assert all(results[name]["seconds"] > 0 for name in steps)
    assert "met" in results["seconds of ours / without privacy"]


@pytest.mark.filterwarnings("ignore")
def test_every_step_on_a_cpu_is_measured():
    for section in (gpu.convolution_step, gpu.wide_step):
        results = section(CPU, rows=8, runs=1)
        assert all(results[name]["seconds"] > 0 for name in gpu.CPU_STEPS)


def test_a_missing_peer_is_skipped_and_named(monkeypatch):
    monkeypatch.setattr(gpu, "find_spec", lambda name: None)
    monkeypatch.setattr(gpu, "CPU_STEPS", {"Opacus with hooks": gpu.opacus_step})
    results = gpu.convolution_step(CPU, rows=4, runs=1)
    assert results["Opacus with hooks"] == "not measured: Opacus is missing"
