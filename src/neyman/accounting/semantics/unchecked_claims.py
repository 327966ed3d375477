"""Write sentences on claims that no command checks, for which the custodian is responsible."""

from __future__ import annotations

ROW_WORDS = frozenset({"entry", "line", "observation", "record", "row"})
"""Privacy units whose names mean rows of a table. Nothing is assumed about them."""


def one_row_each(subject: str, column: str | None) -> str:
    """Write that the guarantee assumes at most one row for each unit.

    Args:
        column: the column that names the unit, or None.

    Returns:
        The sentence. "" if ``column`` is given, or if ``subject`` means a row, such as "record".
    """
    if column is not None or subject.strip().casefold() in ROW_WORDS:
        return ""
    return f"The guarantee assumes that each {subject} has at most one row."


def rows_not_stated(subject: str, column: str | None, *, rows_given: bool) -> str:
    """Write the warning for a plan that states neither its column of unit ids nor rows per unit.

    Args:
        subject: what one unit is, such as "person".
        column: the column that identifies a unit, if the plan names it.
        rows_given: True if the plan states ``rows``.

    Returns:
        The warning. "" if the plan states either, or if ``subject`` means a row.
    """
    assumed = one_row_each(subject, column)
    if rows_given or not assumed:
        return ""
    return (
        f"unit.protects = {subject!r}, and neither unit.id nor unit.rows is given. {assumed} If "
        f"that is true, state rows = 1. If not, name the column of each {subject}, such as id = "
        f"'{'_'.join(subject.split())}_id', and bound its rows."
    )


def disjoint_parts(dataset: str, subject: str) -> str:
    """Return the warning that nothing checks whether the parts of a dataset are disjoint."""
    return (
        f"Nothing checks that the parts of {dataset} are disjoint. If two parts contain the same"
        f" {subject}, the risks of their releases add up. The custodian is responsible for that."
    )


def dataset_names(subject: str) -> str:
    """Write that nothing checks if two dataset names hold different data."""
    return (
        f"Nothing checks that two dataset names hold different data. If they contain the same"
        f" {subject}, the risks of their releases add up. The custodian is responsible for that."
    )
