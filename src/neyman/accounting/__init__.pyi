"""The names of this package that the layers above, users, and tests import."""

from neyman.accounting.calibrate import calibrate_exact as calibrate_exact
from neyman.accounting.charges import charge as charge
from neyman.accounting.currency import Currency as Currency
from neyman.accounting.dp_accounting.accountant import NeymanAccountant as NeymanAccountant
from neyman.accounting.dp_accounting.privacy_loss import from_dp_event as from_dp_event
from neyman.accounting.dp_accounting.privacy_loss import from_pld as from_pld
from neyman.accounting.dp_accounting.privacy_loss import to_pld as to_pld
from neyman.accounting.filters import Filter as Filter
from neyman.accounting.filters import Odometer as Odometer
from neyman.accounting.integrations.opacus import NeymanOpacusAccountant as NeymanOpacusAccountant
from neyman.accounting.integrations.opacus import check_batches as check_batches
from neyman.accounting.integrations.step_accountant import check_model as check_model
from neyman.accounting.literature.approximations import Estimate as Estimate
from neyman.accounting.literature.approximations import central_limit as central_limit
from neyman.accounting.literature.approximations import edgeworth as edgeworth
from neyman.accounting.literature.approximations import high_dimensional as high_dimensional
from neyman.accounting.literature.approximations import normal as normal
from neyman.accounting.literature.deployments import scale_sentence as scale_sentence
from neyman.accounting.optimality.table_gap import GAP as GAP
from neyman.accounting.optimality.table_gap import cell_gap as cell_gap
from neyman.accounting.optimality.table_gap import mean_gap as mean_gap
from neyman.accounting.personal_filter import PersonalFilter as PersonalFilter
from neyman.accounting.semantics.attacks import PRIOR_CONDITION as PRIOR_CONDITION
from neyman.accounting.semantics.attacks import conditions_of as conditions_of
from neyman.accounting.semantics.attacks import stated_condition as stated_condition
from neyman.accounting.semantics.attacks import usual_attacks as usual_attacks
from neyman.accounting.semantics.axioms import composition as composition
from neyman.accounting.semantics.axioms import convexity as convexity
from neyman.accounting.semantics.axioms import post_processing as post_processing
from neyman.accounting.semantics.bayes import membership_success as membership_success
from neyman.accounting.semantics.bayes import posterior_chance as posterior_chance
from neyman.accounting.semantics.bayes import posterior_ratios as posterior_ratios
from neyman.accounting.semantics.best_test import experiment as experiment
from neyman.accounting.semantics.budget import AtMost as AtMost
from neyman.accounting.semantics.budget import PlanBudget as PlanBudget
from neyman.accounting.semantics.budget import Zcdp as Zcdp
from neyman.accounting.semantics.budget import budget_of as budget_of
from neyman.accounting.semantics.budget import within_limit as within_limit
from neyman.accounting.semantics.budget_warnings import budget_warnings as budget_warnings
from neyman.accounting.semantics.digits import exact_text as exact_text
from neyman.accounting.semantics.digits import number as number
from neyman.accounting.semantics.digits import percent as percent
from neyman.accounting.semantics.digits import plural as plural
from neyman.accounting.semantics.statistical_distance import (
    posterior_distance as posterior_distance,
)
from neyman.accounting.semantics.testing import (
    positive_predictive_value as positive_predictive_value,
)

from .literature import approximations as approximations
from .literature import conversions as conversions
from .literature import deployments as deployments
from .semantics import digits as digits
from .semantics import sentences as sentences
