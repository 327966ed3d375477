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
    "accounting/dp_accounting/privacy_loss.py:_table_of_profiles",
    "accounting/literature/conversions.py:_too_small",
    "accounting/literature/cumulants.py:_moments",
    "accounting/literature/cumulants.py:fourth_moment",
    "accounting/literature/edgeworth_error.py:_transform_difference",
    "auditing/one_run_bounds.py:Guesses.delta",
    "auditing/one_run_bounds.py:Guesses.epsilon",
    "auditing/one_run_bounds.py:Guesses.refutes",
    "mechanisms/canonical/distribution.py:CanonicalLaw.variance",
    "mechanisms/canonical/distribution.py:_hold_symmetric",
    "mechanisms/canonical/iterates_numeric.py:Stepwise.place",
    "mechanisms/canonical/tabulated_power.py:TabulatedPower.log_powers",
    "curves/divergences/admission.py:_spent",
    "curves/divergences/divergence.py:slope_at_zero",
    "curves/divergences/envelope.py:below_ceiling",
    "curves/divergences/implied_profile.py:ImpliedProfile.__init__",
    "curves/divergences/implied_profile.py:ImpliedProfile.log_powers",
    "curves/divergences/implied_profile.py:_log_delta_over",
    "analysis/hypothesis_tests/binomial_sums.py:Limits",
    "curves/losses/bracket.py:_atoms",
    "curves/losses/bracket.py:_shrunk",
    "curves/losses/circular_arcs.py:CircularGaussianLoss",
    "curves/losses/finite.py:OffLatticeLoss.reverse",
    "curves/losses/finite.py:PLACE_ERROR",
    "curves/losses/finite.py:_rho_of_values",
    "curves/losses/likelihood_ratio.py:LikelihoodRatioLoss._decay_beyond",
    "curves/losses/likelihood_ratio.py:LikelihoodRatioLoss.mu",
    "curves/losses/piecewise_analytic.py:PiecewiseAnalyticLoss.point_masses",
    "curves/losses/piecewise_analytic.py:upright_ends",
    "curves/losses/random_allocation.py:RandomAllocationLoss",
    "curves/losses/random_allocation.py:_law",
    "curves/losses/random_allocation.py:_single_loss",
    "curves/losses/random_allocation.py:_sum",
    "curves/losses/subsampled.py:_mass_bounds",
    "curves/losses/subsampled.py:_inverse",
    "curves/losses/subsampled.py:_moves",
    "mechanisms/matrix_mechanism/strategy.py:Strategy.reading",
    "accounting/optimality/lower_bounds.py:two_spread",
    "curves/profiles/closed_forms/closed_form.py:CircularGaussianProfile.log_delta",
    "curves/profiles/closed_forms/closed_form.py:GaussianMixtureProfile._largest_loss",
    "curves/profiles/closed_forms/closed_form.py:_log_excess",
    "curves/profiles/rare_choice.py:RareChoiceProfile._ask_likely_losses",
    "curves/profiles/rare_choice.py:RareChoiceProfile.log_powers",
    "curves/profiles/rare_choice.py:_rare",
    "curves/profiles/sampled_steps/bracket_sum.py:BracketSum._transform",
    "curves/profiles/sampled_steps/bracket_sum.py:BracketSum.built",
    "curves/profiles/contour/complement_line.py:_built",
    "curves/profiles/contour/complement_line.py:_largest_around",
    "curves/profiles/contour/conditioning.py:ConditionedProfile._new_atoms",
    "curves/profiles/contour/conditioning.py:ConditionedProfile._sums",
    "curves/profiles/contour/continuous_parts.py:BentContour._logs",
    "curves/profiles/contour/continuous_parts.py:BentContour.sum",
    "curves/profiles/contour/continuous_parts.py:PartsProfile.__init__",
    "curves/profiles/contour/continuous_parts.py:PartsProfile._above_zero",
    "curves/profiles/contour/continuous_parts.py:PartsProfile.log_powers",
    "curves/profiles/contour/continuous_parts.py:_Places.of.error",
    "curves/profiles/contour/continuous_parts.py:_amplitudes",
    "curves/profiles/contour/continuous_parts.py:_log_rise",
    "curves/profiles/contour/continuous_parts.py:_trunk",
    "curves/profiles/contour/continuous_parts.py:bent_contour",
    "curves/profiles/contour_line.py:Line._sums",
    "curves/profiles/contour_line.py:_built",
    "curves/profiles/duality.py:Conjugate._around",
    "curves/profiles/duality.py:line_at",
    "curves/profiles/sampled_steps/distant_steps.py:DistantStepsProfile.__init__",
    "curves/profiles/sampled_steps/distant_steps.py:DistantStepsProfile._addition_bounds",
    "curves/profiles/sampled_steps/distant_steps.py:DistantStepsProfile._added_power",
    "curves/profiles/sampled_steps/distant_steps.py:DistantStepsProfile._means",
    "curves/profiles/sampled_steps/distant_steps.py:DistantStepsProfile._places",
    "curves/profiles/sampled_steps/distant_steps.py:DistantStepsProfile._power_at_atom",
    "curves/profiles/sampled_steps/distant_steps.py:DistantStepsProfile._removal_sum",
    "curves/profiles/sampled_steps/distant_steps.py:_gaussian",
    "curves/profiles/sampled_steps/few_steps.py:FewSteps._sums",
    "curves/profiles/sampled_steps/finite_steps.py:Bracket.line",
    "curves/profiles/sampled_steps/finite_steps.py:Bracket.log_f",
    "curves/profiles/sampled_steps/finite_steps.py:_FiniteSide.of",
    "curves/profiles/sampled_steps/finite_steps.py:_even_power_bound",
    "curves/profiles/sampled_steps/finite_steps.py:_transform",
    "curves/profiles/sampled_steps/likely_sums.py:Listing._ends",
    "curves/profiles/sampled_steps/likely_sums.py:Listing.log_delta",
    "curves/profiles/sampled_steps/likely_sums.py:Values.log_mgf",
    "curves/profiles/sampled_steps/likely_sums.py:_List._with",
    "curves/profiles/sampled_steps/likely_sums.py:_List.add",
    "curves/profiles/sampled_steps/likely_sums.py:listing",
    "curves/profiles/sampled_steps/likely_sums.py:values_of",
    "curves/profiles/sampled_steps/few_steps.py:FewStepsProfile._level",
    "curves/profiles/sampled_steps/few_steps.py:FewStepsProfile._power",
    "curves/profiles/lattice/lattice.py:LatticeProfile._finite_power",
    "accounting/optimality/lower_bounds.py:ball_packing",
    "analysis/hypothesis_tests/power.py:SimulatedPower._miss",
    "curves/losses/finite.py:_ValuesLoss._apart",
    "curves/losses/finite.py:_ValuesLoss.variance",
    "curves/profiles/closed_forms/closed_form.py:value_interval",
    "curves/profiles/lattice/corners.py:_added",
    "curves/profiles/lattice/corners.py:_convolved",
    "curves/profiles/lattice/corners.py:_mu",
    "curves/profiles/lattice/corners.py:_power",
    "curves/tradeoff/affinity.py:affinity",
    "curves/tradeoff/loss_variable.py:_variance",
    "curves/tradeoff/queries.py:sampled_mu",
    "curves/profiles/lattice/lattice.py:Side._spread",
    "curves/profiles/lattice/lattice.py:Side.log_miss",
    "curves/profiles/lattice/lattice.py:Side.rounding",
    "curves/profiles/sampled_steps/log_sum_density.py:_row",
    "curves/profiles/sampled_steps/log_sum_density.py:_tabulate",
    "curves/profiles/sampled_steps/one_subsampled_step.py:ReplaceOneStepProfile._logs",
    "curves/profiles/sampled_steps/step_grid.py:StepGrid.psi_units",
    "curves/profiles/sampled_steps/step_nodes.py:StepNodes._bound_last",
    "curves/profiles/sampled_steps/step_nodes.py:StepNodes._bound_panels",
    "curves/profiles/sampled_steps/step_nodes.py:StepNodes._gain",
    "curves/profiles/sampled_steps/step_nodes.py:StepNodes._log_above",
    "accounting/semantics/bayes.py:_beneath",
    "accounting/semantics/bayes.py:_tails.value",
    "accounting/semantics/bayes.py:membership_success",
    "accounting/semantics/bayes.py:posterior_chance",
    "mechanisms/shuffling/shuffled_profiles.py:BinaryShuffleProfile.log_deltas",
    "mechanisms/shuffling/shuffled_profiles.py:ShuffleProfile._bracket_logs",
    "mechanisms/shuffling/shuffled_profiles.py:ShuffleProfile._sums",
    "mechanisms/shuffling/shuffled_profiles.py:ShuffleProfile.log_deltas",
    "mechanisms/shuffling/shuffled_profiles.py:ShuffleProfile.rough",
    "curves/tradeoff/enclosure.py:_Places._points",
    "curves/tradeoff/enclosure.py:_on_lattice",
    "curves/tradeoff/loss_tails.py:_on_line",
    "curves/tradeoff/loss_tails.py:_sampled_tails",
    "curves/tradeoff/loss_variable.py:PrivacyLoss._at",
    "curves/tradeoff/loss_variable.py:PrivacyLoss._on_line",
    "curves/tradeoff/order.py:_by_corners",
    "curves/tradeoff/safe_mu.py:HalfCurve._certain",
    "curves/tradeoff/safe_mu.py:HalfCurve._mu",
    "curves/tradeoff/safe_mu.py:HalfCurve._power",
    "curves/tradeoff/safe_mu.py:HalfCurve._ranges",
    "curves/tradeoff/safe_mu.py:_slack",
    "curves/tradeoff/safe_mu.py:mu_of_points",
    "curves/tradeoff/tradeoff.py:Tradeoff._power_at.ask",
    "curves/tradeoff/tradeoff.py:Tradeoff.success",
    "auditing/black_box.py:AttackCurve.band",
    "auditing/scores.py:_deviation",
    "curves/losses/user_pair.py:Density.cells",
    "curves/losses/user_pair.py:Masses.__post_init__",
    "curves/losses/user_pair.py:Masses.cells",
    "curves/losses/user_pair.py:NARROW_PIECE",
    "curves/losses/user_pair.py:_Law.loss",
    "curves/losses/user_pair.py:_laws",
    "curves/losses/user_pair.py:_normalize",
    "mechanisms/custom_noise.py:_shifts",
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
        package = "/".join(slack.file.split("/")[:-1][:2])
        counts.setdefault(package, Counter())[state] += 1
    counts["all"] = sum(counts.values(), Counter())
    rows = [
        f"|{name}|{count.total()}|{count['shown']}|{count['derived']}|{count['open']}|"
        for name, count in sorted(counts.items(), key=lambda row: (row[0] == "all", row))
    ]
    table = [line for line in PAGE.read_text().splitlines() if line.startswith("|")][2:]
    assert table == rows, "\n".join(rows)
