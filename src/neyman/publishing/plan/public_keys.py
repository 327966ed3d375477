"""Report a plan's public keys: their number, their file, and keys that look private."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from neyman.publishing.plan.plan import Plan

CROWDED_SHARE = Fraction(1, 2)
"""If a level has at least this part of the declared number of rows as places, it looks private."""

_IDENTIFIER = re.compile(
    r"""(full|first|last|given|family|middle|maiden|sur|fore|user|nick)?names?
    | (person|people|patient|user|customer|client|member|employee|student|pupil|voter|taxpayer
      |household|respondent|participant|subject|record|row|case|account|national|unique|tax)?
      (id|ids|identifier|identifiers|uid|number|no|nr)
    | ssn | socialsecurity(number|no|nr)? | nino | nhs(number|no)? | mrn | medicalrecordnumber
    | uuid | guid | key | pseudonym | hash
    | e?mails? | e?mailaddress | phones? | (tele|mobile|cell|home|work)?phone(number|no|nr)?
    | mobile | telephone
    | (home|street|postal|mail)?address(es)? | ip | ipaddress
    | birthda(te|y) | dateofbirth | dob
    | passport(number|no|nr)? | (drivers?)?licen[cs]e(number|no|nr)? | licen[cs]eplate
    | iban | bankaccount | creditcard(number|no|nr)? | cardnumber""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class KeyList:
    """Describe the public keys of a hierarchy, or of a column that names a file.

    Args:
        hierarchy: the hierarchy's name; None for a column.
        file: the path of the key file in the plan; None if the plan lists the places.
        places: for each level, top first, its name and its number of places; or the column with its
            number of keys.
    """

    hierarchy: str | None
    file: str | None
    places: tuple[tuple[str, int], ...]

    def text(self) -> str:
        """Return a sentence with the number of places of each level, or of keys."""
        if self.hierarchy is None:
            ((column, number),) = self.places
            return f"Key file {self.file}: {number:,} keys of {column}. A release publishes each."
        listed = ", ".join(f"{level} {number:,}" for level, number in self.places)
        source = f"Key file {self.file}" if self.file else f"The plan's list for {self.hierarchy}"
        return f"{source}: {self.places[-1][1]:,} places ({listed}). A release publishes each name."


def key_lists(plan: Plan) -> tuple[KeyList, ...]:
    """Return the public keys of each hierarchy, and of columns with a key file."""
    columns = [
        KeyList(None, column.file.path, ((column.name, len(column.keys)),))
        for column in plan.columns
        if column.file is not None
    ]
    places = [
        KeyList(
            one.name,
            one.file.path if one.file else None,
            tuple((level, len(one.paths(level))) for level in one.levels),
        )
        for one in plan.hierarchies
    ]
    return (*places, *columns)


def key_warnings(plan: Plan) -> Iterator[str]:
    """Yield a sentence for each level or column whose public keys look like private records.

    A level looks private if it has nearly as many places as the table has rows by the plan
    (``most_rows``, or a ``public`` total), or if it is named like an identifier of a person.
    """
    totals = [total for query in plan.queries for _, total in query.public]
    totals += [plan.most_rows] if plan.most_rows is not None else []
    rows = min(totals, default=None)
    levels = [
        ("level", name, len(one.paths(name))) for one in plan.hierarchies for name in one.levels
    ]
    columns = [("column", one.name, len(one.keys)) for one in plan.columns if one.keys]
    for what, name, number in levels + columns:
        if _IDENTIFIER.fullmatch(re.sub(r"[\W\d_]", "", name.casefold())):
            yield (
                f"The {what} {name!r} is named like an identifier of a {plan.unit.protects}, and a "
                "release publishes each of its keys. Remove it, unless these keys are public."
            )
        if rows is not None and number > 1 and number >= CROWDED_SHARE * rows:
            yield (
                f"The {what} {name!r} has {number:,} keys, and the plan declares {rows:,} rows. A "
                "release publishes each key. Check that the list was not made from private rows."
            )
