"""Write a release's record for the Differential Privacy Deployments Registry from its receipt.

The fields follow ``schemas/deployments-schema.yaml`` of opendp/deployments-registry-data at commit
617ad178d594. The registry renames fields as it grows, so compare with its newest schema. Facts that
a receipt lacks are labeled, so that no reader takes a default for a statement of the custodian.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, cast

from neyman.accounting.semantics.budget import Zcdp
from neyman.accounting.semantics.digits import many
from neyman.accounting.semantics.sentences import known
from neyman.display.report.receipt_view import tables_of
from neyman.display.report.receipt_view import unit as unit_of
from neyman.numerics.bound import directed
from neyman.publishing.release.receipt_format import Number, Receipt

SCHEMA_COMMIT = "617ad178d59481c1c04bbe3ef4386fc0e68d6d33"
UNKNOWN = "NOT IN THE RECEIPT: "
"""Fields that the custodian must fill in begin with this text."""
_RECORD_DELTA = 1e-6


def record(receipt: Receipt) -> dict[str, Any]:
    """Return the record with the names and the nesting of the registry's schema.

    Returns:
        JSON types. Numbers of the guarantee are upper ends, rounded up.
    """
    unit, relation = receipt.unit, receipt.neighboring
    changed = "replaced" if relation == "replace-one" else "added or removed"
    pair = f"all rows of one {unit.protects} ({_rows(receipt)} at most) are {changed}"
    if receipt.guarantee.held:
        pair += f" by one with the same {' and '.join(receipt.guarantee.held)}"
    charged = f"; the ledger was charged on {receipt.ledger.date} (UTC)"
    dp_flavor = {
        "name": receipt.budget.flavor,
        "input_metric": f"Number of {unit.protects} units whose rows are {changed}",
        "bound_on_input_distance": "1",
        "output_measure": "Trade-off function: power of the best test at each level",
        "bound_on_output_distance": _powers(receipt),
        "data_domain": f"Every table with the columns that the plan of {receipt.dataset} reads",
        "unprotected_quantities": _unprotected_tables(receipt),
    }
    return {
        "status": "Draft",
        "registry_authors": [f"{UNKNOWN}who fills in this record"],
        "tier": 1,
        "deployment": {
            "name": str(receipt.plan.get("name", "")),
            "data_curator": str(
                receipt.plan.get("publisher") or f"{UNKNOWN}who publishes the tables"
            ),
            "description": f"{many(len(tables_of(receipt)), 'noisy table')} of {receipt.dataset}",
            "intended_use": f"{UNKNOWN}what the tables are for",
            "data_product_type": "Summary statistics",
            "data_product_region": f"{UNKNOWN}the region that the data describe",
            "publication_date": f"{UNKNOWN}the date, as YYYY-MM-DD{charged}",
            "dp_flavor": dp_flavor,
            "privacy_loss": {
                "privacy_unit": unit.protects,
                "privacy_unit_description": f"{relation}: two datasets are adjacent if {pair}.",
                "privacy_parameters": _parameters(receipt),
                "privacy_parameters_description": _powers(receipt),
            },
            "model": {
                "model_name": "Central",
                "actors": f"{UNKNOWN}who sees the data, and whom the {unit.protects} must trust",
                "is_many_release_description": f"{UNKNOWN}other releases of the same data",
                "is_dynamic_description": f"{UNKNOWN}whether new data come in over time",
            },
            "accounting": {
                "post_processing": _post_processing(receipt),
                "composition": (
                    "The tables are composed into one trade-off function, with certified bounds. "
                    f"The ledger charged {receipt.ledger.charged} and delta "
                    f"{receipt.ledger.charged_delta} ({receipt.ledger.currency}) to "
                    f"{receipt.ledger.account}. {UNKNOWN}other charges to this account."
                ),
            },
            "implementation": {
                "pre_processing_eda_hyperparameter_tuning": (
                    "The plan declares clips, keys, and replacements for missing values. "
                    f"{UNKNOWN}what was done with the data before, and how the plan was chosen"
                ),
                "mechanisms": _mechanisms(receipt),
                "justification": f"{UNKNOWN}why this budget and these shares",
            },
            "additional_information": (
                f"Plan {receipt.plan_hash}. `neyman verify` recomputes the guarantee from "
                "receipt.json, without the data."
            ),
        },
    }


def pyramid(receipt: Receipt) -> list[tuple[str, str, str]]:
    """Return the layers of the pyramid of NIST SP 800-226, from the top.

    Returns:
        Of each layer: the topic, the statement of this release, and the agency's task.
    """
    unit = receipt.unit
    return [
        (
            "Top: privacy parameters",
            f"{_powers(receipt)} {_epsilons(receipt)}",
            "Decide that these limits are acceptable, together with every other release.",
        ),
        (
            "Top: privacy unit",
            f"One {known(unit.protects, receipt.guarantee.held)} with at most "
            f"{_rows(receipt)}, {receipt.neighboring}.",
            f"Check that a {unit.protects} cannot have more rows, or be in the data twice.",
        ),
        (
            "Middle: algorithms and their correctness",
            _mechanisms(receipt),
            "Verify the receipt, and keep the software up to date.",
        ),
        (
            "Middle: utility and bias",
            "The receipt has the standard error of each table. Noise affects small groups most. "
            + _post_processing(receipt),
            "Decide which groups need more accuracy. Clips and keys can bias results.",
        ),
        (
            "Middle: trust model and side channels",
            "Central model. Errors after the charge state nothing about the data.",
            "Control who sees running times, logs, and the machine.",
        ),
        (
            "Bottom: security, access, and data collection",
            "Nothing. A receipt does not know how the data were collected or kept.",
            "Protect the data from collection to deletion, and the signing key and the ledger.",
        ),
    ]


def registry_text(receipt: Receipt) -> str:
    """Return the record as YAML, followed by the pyramid of NIST SP 800-226 as comments."""
    lines = [
        "# Differential Privacy Deployments Registry, opendp/deployments-registry-data.",
        f"# Fields: schemas/deployments-schema.yaml at commit {SCHEMA_COMMIT[:12]}.",
        f"# The custodian fills in each field with {UNKNOWN.strip(': ')!r}, then raises the tier.",
        *_yaml(record(receipt)),
        "",
        "# NIST SP 800-226: what each layer of the pyramid needs. Each rests on those below it.",
    ]
    for topic, statement, left in pyramid(receipt):
        lines += [f"# {topic}", f"#   This release: {_one_line(statement)}"]
        lines += [f"#   Left to the agency: {_one_line(left)}"]
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    """Return a text without line ends, because they would end the comment."""
    return " ".join(text.split())


def _yaml(value: Mapping[str, Any], indent: str = "") -> list[str]:
    """Return a mapping as YAML. Texts are JSON strings, which YAML reads unchanged."""
    lines: list[str] = []
    for name, item in value.items():
        if isinstance(item, Mapping):
            part = cast(Mapping[str, Any], item)
            lines += [f"{indent}{name}:", *_yaml(part, indent + "  ")]
        else:
            lines.append(f"{indent}{name}: {json.dumps(item)}")
    return lines


def _rows(receipt: Receipt) -> str:
    """Return the largest number of rows of a unit in all private tables together, in words."""
    _, rows = unit_of(receipt)
    return many(rows, "row")


def _finite(number: Number) -> float | None:
    value = float(number)
    return value if math.isfinite(value) else None


def _parameters(receipt: Receipt) -> dict[str, float]:
    """Return rho for zCDP, and otherwise epsilon at a delta. Omit infinite numbers."""
    if isinstance(receipt.budget, Zcdp):
        rho = _finite(receipt.guarantee.rho.upper)
        return {} if rho is None else {"rho": float(directed(rho, 6, up=True))}
    for point in receipt.guarantee.epsilon:
        epsilon = _finite(point.upper)
        if point.delta == _RECORD_DELTA and epsilon is not None:
            return {"epsilon": float(directed(epsilon, 6, up=True)), "delta": _RECORD_DELTA}
    return {}


def _powers(receipt: Receipt) -> str:
    points = ", ".join(
        f"{directed(float(p.upper), 4, up=True)} at level {float(p.level):g}"
        for p in receipt.guarantee.power
    )
    return f"Power of the best test, at most: {points}."


def _epsilons(receipt: Receipt) -> str:
    points = ", ".join(
        f"{directed(float(p.upper), 5, up=True)} at delta {float(p.delta):g}"
        for p in receipt.guarantee.epsilon
    )
    return f"Epsilon, at most: {points}."


def _unprotected_tables(receipt: Receipt) -> str:
    declared = [f"{part.query} by {part.level}" for part in receipt.mechanisms if part.public]
    declared += [f"totals by {', '.join(each['by'])}" for each in receipt.plan.get("totals", ())]
    keys = "Table names, declared keys, and the plan are public."
    return f"{keys} Declared public tables: {', '.join(declared) or 'none'}."


def _mechanisms(receipt: Receipt) -> str:
    parts = (
        f"{p.query} by {p.level} ({p.measure}): {p.mechanism['type']}, standard error "
        f"{p.standard_error}"
        for p in receipt.mechanisms
        if p.mechanism
    )
    version = receipt.versions.get("neyman", "of unknown version")
    return (
        f"{'; '.join(parts)}. A standard error is that of the whole number that gets the noise "
        "(for a sum of a column with 2 decimals, of 100 times the sum), and of the rank for "
        f"InverseSensitivity. Neyman {version}: integer noise from exact samplers and the system's "
        "random bits, so no rounding of floating point enters."
    )


def _post_processing(receipt: Receipt) -> str:
    if receipt.consistency is None:
        return "The plan asks for no post-processing beyond published estimates."
    return f"Consistent tables by {receipt.consistency.method}, from published numbers alone."
