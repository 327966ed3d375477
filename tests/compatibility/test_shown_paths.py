"""Dotted paths that pages have shown keep working, and name the objects of today."""

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name

import pytest

from neyman.former_modules import FORMER_MODULES, current_module

pytest.importorskip("ibis", reason="pages show modules that neyman[release] installs")

SHOWN = Path(__file__).with_name("shown_paths.txt").read_text().split()
"""What README, docs, and notebooks showed at 04ff416."""
TORCH = "neyman.integrations.opacus"


@pytest.mark.filterwarnings("ignore:neyman:DeprecationWarning")
@pytest.mark.parametrize("path", [one for one in SHOWN if not one.startswith(TORCH)])
def test_a_path_that_a_page_showed_is_imported(path):
    assert resolve_name(path) is not None


def test_a_former_path_is_the_module_itself_and_its_warning_names_the_new_path():
    sys.modules.pop("neyman.plots.figures", None)
    with pytest.warns(DeprecationWarning, match=r"moved to neyman\.display\.plots\.figures"):
        former = importlib.import_module("neyman.plots.figures")
    assert former is importlib.import_module("neyman.display.plots.figures")
    assert former.__spec__.name == former.__name__ == "neyman.display.plots.figures"


def test_each_former_path_has_a_module_today():
    for former, today in FORMER_MODULES.items():
        assert current_module(former) == today
        assert find_spec(today) is not None, today


def test_a_path_that_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("neyman.figures")


def test_the_accountant_of_opacus_is_at_its_former_path():
    assert current_module(TORCH) == "neyman.accounting.integrations.opacus"
    assert find_spec("neyman.accounting.integrations.opacus") is not None
