"""Another package adds mechanisms, a loss, and an engine by an entry point, and edits nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = """
from dataclasses import dataclass, field, replace
from fractions import Fraction
import math

import numpy as np

import neyman as ny
from neyman.curves.losses.composition import Composition
from neyman.curves.losses.finite import FiniteLoss
from neyman.curves.profiles.profile import Profile
from neyman.curves.profiles.selection import profile_of_one
from neyman.mechanisms.custom_noise import CustomNoise, Density


@dataclass(frozen=True)
class Logistic(CustomNoise):
    scale: float
    sensitivity: float = 1

    def law(self):
        s = self.scale

        def log_density(x):
            return -abs(x) / s - 2 * np.log1p(np.exp(-abs(x) / s)) - np.log(s)

        return Density(log_density=log_density, low=-80 * s, high=80 * s, tails=1e-34,
                       curvature=0.5 / s**2, log_concave=True)


class Unproven(Logistic):
    def law(self):
        return replace(super().law(), log_concave=False)


class CoinLoss(FiniteLoss):
    def reverse(self):
        return self


class CoinProfile(Profile):
    method = "formula of another package"

    def __init__(self, epsilon):
        self.epsilon = epsilon

    def log_delta(self, epsilon):
        gain = (math.exp(self.epsilon) - math.exp(epsilon)) / (1 + math.exp(self.epsilon))
        value = math.log(gain) if gain > 0 else -math.inf
        return value - 1e-9, value + 1e-9

    def log_power(self, log_level):
        return log_level, 0.0


@profile_of_one.register
def _(loss: CoinLoss):
    return CoinProfile(float(loss.supremum))


@dataclass(frozen=True)
class Coin(ny.Mechanism):
    RELATION = "any"
    epsilon: float

    def losses(self):
        e = self.epsilon
        log_p = (-e - math.log1p(math.exp(-e)), -math.log1p(math.exp(-e)))
        return (Composition.of([(CoinLoss(Fraction(e), (-1, 1), log_p), 1)]),)

    def rho(self):
        return Fraction(self.epsilon) ** 2 / 2
"""
POINTS = """
[neyman.mechanisms]
Logistic = survey_noise:Logistic
Coin = survey_noise:Coin
Unproven = survey_noise:Unproven
Gaussian = survey_noise:Logistic
Wrong = survey_noise:Coin
Absent = no_such_module:Absent
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with the package and its metadata, as an installer leaves them."""
    (tmp_path / "survey_noise.py").write_text(MODULE)
    metadata = tmp_path / "survey_noise-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: survey-noise\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(POINTS)
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *arguments], env=os.environ | {"PYTHONPATH": paths},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_text_of_account_marks_an_estimate_and_says_why(installed):
    shown = run(installed, "-m", "neyman", "account", "Unproven(2)").stdout
    said = " ".join(shown.split())
    mark = "Estimate, and no guarantee (the full shift alone, and no proof for smaller ones). "
    assert f"{mark}At every false positive" in said
    assert f"{mark}An attacker who wrongly confirms" in said
    assert f"{mark}Scale at a 5% false positive rate" in said
    certified = run(installed, "-m", "neyman", "account", "Logistic(2)").stdout
    assert "Estimate" not in certified


def test_json_and_the_command_line_know_a_mechanism_of_an_installed_package(installed):
    code = """
import json, sys
import neyman as ny
before = "survey_noise" in sys.modules
ny.Gaussian(1).tradeoff().epsilon(1e-6)
ny.Mechanism.from_dict({"type": "Gaussian", "sigma": 1, "sensitivity": 1})
after = "survey_noise" in sys.modules
m = ny.Mechanism.from_dict({"type": "Logistic", "scale": 2, "sensitivity": 1})
f = (m + ny.Laplace(3)).tradeoff()
coin = ny.Mechanism.from_json('{"type": "Coin", "epsilon": 1.0}').tradeoff().delta(0.5)
print(json.dumps([before, after, f.epsilon(1e-6).upper, len(f.statements), coin.method,
                  m.to_dict()["statements"] == list(f.statements)]))
"""
    done = run(installed, "-c", code)
    assert done.returncode == 0, done.stderr
    before, after, epsilon, statements, method, same = json.loads(done.stdout)
    assert (before, after, statements, same) == (False, False, 4, True)
    assert 0.8 < epsilon < 0.8334
    assert "formula of another package" in method
    done = run(installed, "-m", "neyman", "account", "Logistic(2) * 3 + Gaussian(5)", "--json")
    assert done.returncode == 0, done.stderr
    described = json.loads(done.stdout)["mechanism"]
    assert any(len(part["mechanism"].get("statements", ())) == 4 for part in described["parts"])


def test_names_of_ours_stay_ours_and_wrong_entry_points_are_named(installed):
    code = """
import neyman as ny
ours = ny.Mechanism.from_dict({"type": "Gaussian", "sigma": 1, "sensitivity": 1})
assert type(ours) is ny.Gaussian
for name in ("Wrong", "Absent", "Unknown", "print"):
    try:
        ny.Mechanism.from_dict({"type": name, "epsilon": 1.0})
    except ValueError as error:
        print(error)
try:
    class Laplace(ny.Mechanism): ...
except TypeError as error:
    print(error)
"""
    done = run(installed, "-c", code)
    assert done.returncode == 0, done.stderr
    wrong, absent, unknown, printed, taken = done.stdout.splitlines()
    assert "survey_noise:Coin is not a class of mechanisms of this name" in wrong
    assert "no_such_module" in absent
    assert "is not a mechanism; known are" in unknown
    assert "is not a mechanism; known are" in printed
    assert "the name is that of a mechanism in neyman.mechanisms.additive" in taken
    done = run(installed, "-m", "neyman", "account", "Wrong(2)")
    assert done.returncode != 0
    assert "not a class of mechanisms" in done.stderr


def test_two_packages_with_one_name_are_refused(installed):
    other = installed / "other_noise-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other-noise\nVersion: 1.0\n")
    (other / "entry_points.txt").write_text("[neyman.mechanisms]\nCoin = other_noise:Coin\n")
    code = "import neyman as ny; ny.Mechanism.from_dict({'type': 'Coin', 'epsilon': 1.0})"
    done = run(installed, "-c", code)
    assert "is offered by several packages" in done.stderr
