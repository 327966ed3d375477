"""The page on rounding counts the slacks, and those that a test shows to be necessary."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path

from slacks import every_slack, slacks

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "certificates" / "rounding.md"
DERIVED = (
    "accounting/compare_noise.py:_wide",
    "accounting/dp_accounting/accountant.py:NeymanAccountant._certain_loss",
    "accounting/dp_accounting/privacy_loss.py:_tabulated",
    "accounting/literature/conversions.py:_too_small",
    "accounting/literature/cumulants.py:_moments",
    "accounting/literature/cumulants.py:fourth_moment",
    "accounting/literature/edgeworth_error.py:_apart",
    "auditing/one_run_bounds.py:Guesses.delta",
    "auditing/one_run_bounds.py:Guesses.epsilon",
    "auditing/one_run_bounds.py:Guesses.refutes",
    "canonical/distribution.py:CanonicalLaw.variance",
    "canonical/distribution.py:_held",
    "canonical/tabulated_power.py:TabulatedPower.log_powers",
    "divergences/admission.py:_spent",
    "divergences/envelope.py:below_ceiling",
    "divergences/implied_profile.py:ImpliedProfile.__init__",
    "divergences/implied_profile.py:ImpliedProfile.log_powers",
    "divergences/implied_profile.py:_log_delta_over",
    "hypothesis_tests/binomial_sums.py:SUM_SLACK",
    "losses/bracket.py:_atoms",
    "losses/bracket.py:_shrunk",
    "losses/finite.py:OffLatticeLoss.reverse",
    "losses/finite.py:PLACE",
    "losses/finite.py:_rho_of_values",
    "losses/likelihood_ratio.py:LikelihoodRatioLoss.mu",
    "losses/piecewise_analytic.py:PiecewiseAnalyticLoss.point_masses",
    "losses/random_allocation.py:RandomAllocationLoss",
    "losses/random_allocation.py:_law",
    "losses/random_allocation.py:_one",
    "losses/random_allocation.py:_sum",
    "losses/subsampled.py:_inverse",
    "matrix_mechanism/strategy.py:Strategy.reading",
    "numerics/discretization.py:contract_dense",
    "optimality/lower_bounds.py:two_spread",
    "profiles/bracket_sum.py:BracketSum._transform",
    "profiles/bracket_sum.py:BracketSum.built",
    "profiles/complement_line.py:_built",
    "profiles/continuous_parts.py:ManyFromDensity.mgf",
    "profiles/continuous_parts.py:_sides",
    "profiles/contour_line.py:Line._sums",
    "profiles/contour_line.py:_built",
    "profiles/duality.py:Conjugate._around",
    "profiles/duality.py:log_power_by_duality",
    "profiles/few_steps.py:FewSteps._sums",
    "profiles/few_steps.py:FewStepsProfile._level",
    "profiles/few_steps.py:FewStepsProfile._power",
    "profiles/lattice.py:LatticeProfile._finite_power",
    "profiles/lattice.py:LatticeProfile.mu",
    "profiles/lattice.py:Side._spread",
    "profiles/lattice.py:Side.log_miss",
    "profiles/lattice.py:Side.rounding",
    "profiles/log_sum_density.py:_row",
    "profiles/log_sum_density.py:_tabulated",
    "profiles/step_grid.py:StepGrid.psi_units",
    "profiles/step_nodes.py:StepNodes._bound_last",
    "profiles/step_nodes.py:StepNodes._bounded",
    "profiles/step_nodes.py:StepNodes._gain",
    "profiles/step_nodes.py:StepNodes._log_above",
    "semantics/bayes.py:_beneath",
    "semantics/bayes.py:_tails.value",
    "semantics/bayes.py:posterior_chance",
    "shuffling/dominating_pairs.py:BinaryShuffleProfile.log_deltas",
    "shuffling/dominating_pairs.py:ShuffleProfile._given",
    "shuffling/dominating_pairs.py:ShuffleProfile._sums",
    "shuffling/dominating_pairs.py:ShuffleProfile.log_deltas",
    "shuffling/dominating_pairs.py:ShuffleProfile.rough",
    "tradeoff/enclosure.py:_Places._points",
    "tradeoff/enclosure.py:_on_lattice",
    "tradeoff/loss_variable.py:PrivacyLoss._at",
    "tradeoff/order.py:_by_corners",
    "tradeoff/tradeoff.py:Tradeoff._power_at.ask",
    "tradeoff/tradeoff.py:Tradeoff.epsilon.ask",
)
"""Places without a test, of which a comment counts the roundings."""


def test_the_page_on_rounding_counts_the_slacks_of_each_package():
    shown, asked = set(), {s for place in DERIVED for s in slacks(*place.split(":"))}
    for file in sorted(HERE.glob("test_slacks_of_*.py")):
        for test in vars(importlib.import_module(file.stem)).values():
            if hasattr(test, "drops"):
                shown |= {slack for dropped in test.drops for slack in dropped}
                asked |= set(test.every)
    counts: dict[str, Counter[str]] = {}
    for slack in every_slack():
        state = "shown" if slack in shown else "derived" if slack in asked else "open"
        counts.setdefault(slack.file.partition("/")[0], Counter())[state] += 1
    counts["all"] = sum(counts.values(), Counter())
    rows = [
        f"|{name}|{count.total()}|{count['shown']}|{count['derived']}|{count['open']}|"
        for name, count in counts.items()
    ]
    table = [line for line in PAGE.read_text().splitlines() if line.startswith("|")][2:]
    assert table == rows, "\n".join(rows)
