"""Add certified accounting and exact steps to Opacus: ``from neyman.opacus import make_exact``.

Importing this module registers the accountant, so ``PrivacyEngine(accountant="neyman")`` uses it.
After ``make_private``, `make_exact` replaces the batches, the clipping, and the noise. Instead,
`check_batches` leaves all three to Opacus, and checks its settings.
"""

from neyman.accounting.integrations.opacus import NeymanOpacusAccountant, check_batches, check_model
from neyman.analysis.training.opacus_steps import make_exact

__all__ = ["NeymanOpacusAccountant", "check_batches", "check_model", "make_exact"]
