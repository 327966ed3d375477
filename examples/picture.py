"""Draw the README's picture: what an attacker can confirm under four guarantees."""

import sys
from pathlib import Path

import matplotlib
import numpy as np

import neyman as ny

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "neyman"
from matplotlib import pyplot as plt

curves = {
    "pure, epsilon 1": ny.pure(1),
    "Gaussian, mu 1": ny.gdp(1),
    "discrete Gaussian, sigma 1": ny.DiscreteGaussian(1).tradeoff(),
    "zCDP, rho 0.5": ny.zcdp("0.5"),
}
levels = np.concatenate([np.linspace(1e-4, 0.05, 25), np.linspace(0.06, 1, 60)])
figure, axes = plt.subplots(figsize=(6.4, 4.6))
for name, curve in curves.items():
    axes.plot(levels, [curve.power(level).upper for level in levels], label=name, linewidth=1.8)
axes.plot([0, 1], [0, 1], color="0.55", linewidth=1, label="guessing: perfect privacy")
axes.set_xlabel("false positive rate (level)")
axes.set_ylabel("true positive rate (power), at most")
axes.set(xlim=(0, 1), ylim=(0, 1))
axes.legend(frameon=False, loc="lower right")
axes.spines[["top", "right"]].set_visible(False)
figure.tight_layout()
folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs")
figure.savefig(folder / "tradeoff.svg", metadata={"Date": None})
