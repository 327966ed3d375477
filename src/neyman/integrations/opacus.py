"""A certified accountant for Opacus, registered under the name "neyman".

Importing this file registers it: ``PrivacyEngine(accountant="neyman")`` and
``get_noise_multiplier(..., accountant="neyman")`` then use it.
"""

from __future__ import annotations

from neyman.extras import advice
from neyman.integrations.step_accountant import StepAccountant, check_batches, check_model

try:
    from opacus.accountants import (  # pyright: ignore[reportMissingImports]
        IAccountant,
        register_accountant,
    )
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(advice(missing), name=missing.name) from None

__all__ = ["NeymanOpacusAccountant", "check_batches", "check_model"]


class NeymanOpacusAccountant(StepAccountant, IAccountant):
    """The accountant of `StepAccountant`, for Opacus's registry."""


register_accountant("neyman", NeymanOpacusAccountant, force=True)
