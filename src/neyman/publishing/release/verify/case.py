"""Hold the receipt under verification, and compute what follows from its plan on first use."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from neyman.mechanisms.base import Mechanism
from neyman.publishing.consistency.adjusted_tables import Consistent
from neyman.publishing.consistency.published_forms import (
    FOLDER,
    ConsistentForm,
    consistent_forms,
    from_published,
    members,
)
from neyman.publishing.plan.measurement import Entry
from neyman.publishing.plan.plan import Plan
from neyman.publishing.release.clip_tables import Clips, chosen_clips, forms_with
from neyman.publishing.release.detail_tables import forms_with_first_counts
from neyman.publishing.release.field_comparison import Differs, ratio, same
from neyman.publishing.release.folder import Release
from neyman.publishing.release.receipt import composed, mechanism_list
from neyman.publishing.release.receipt_format import Receipt, ReceiptTable
from neyman.publishing.release.table_files import listing
from neyman.publishing.release.verify.size_limits import MemoryLimit
from neyman.publishing.tables.forms import Form, forms


class Case:
    """Hold a receipt and what follows from its plan. Each part is computed once."""

    def __init__(
        self, path: Path, receipt: Mapping[str, Any], content: bytes, memory: MemoryLimit
    ) -> None:
        self.path, self.folder, self.receipt = path, path.parent, receipt
        self.content, self.memory = content, memory

    @cached_property
    def plan(self) -> Plan:
        """Return the plan in the receipt."""
        # A plan that names a file or a range does not list its published keys.
        sections = [
            section
            for name in ("hierarchy", "lookup", "columns")
            for section in self.receipt["plan"].get(name, {}).values()
        ]
        if any(not isinstance(section.get("keys", []), list) for section in sections):
            raise Differs("the plan does not list its public keys: it names a file or a range")
        plan = Plan.from_dict(self.receipt["plan"])
        same("plan", plan.canonical(), self.receipt["plan"])
        return plan

    @cached_property
    def calibrated(self) -> list[tuple[Entry, Fraction]]:
        """Return each entry with its sigma squared. Only the total rho comes from the receipt."""
        return [(entry, entry.sigma_squared(self.scale)) for entry in self.plan.entries()]

    @cached_property
    def scale(self) -> Fraction:
        """Return 1/rho of the plan. The receipt lists the rho of each table."""
        shares = sum((entry.share for entry in self.plan.entries()), Fraction(0))
        return shares / sum(
            (ratio(listed["zcdp"]) for listed in self.receipt["mechanisms"]), Fraction(0)
        )

    @cached_property
    def mechanism(self) -> Mechanism:
        """Return the mechanism of the release, after a check of the listed mechanisms."""
        listed = mechanism_list(self.plan, self.calibrated)
        try:
            same("mechanisms", [part.to_dict() for part in listed], self.receipt["mechanisms"])
        except Differs as error:
            raise Differs(f"not checked, because the mechanisms are wrong: {error}") from None
        if self.plan.disjoint:
            mechanism = self.plan.at_scale(self.scale)
            same("mechanism", mechanism.to_dict(), self.receipt["mechanism"])
            return mechanism
        return composed((part.mechanism, part.count) for part in listed)

    @cached_property
    def release(self) -> Release:
        """Return the folder as a release."""
        return Release.load(self.folder, receipt=Receipt.read(self.receipt), plan=self.plan)

    @cached_property
    def files(self) -> list[ReceiptTable]:
        """Return the table files that the receipt must list. The result has no digests."""
        raw = [
            one
            for form in self.forms
            for one in listing(form.query.name, form.level, self.rows(form))
        ]
        return raw + [
            one
            for query, level in self.consistent
            for one in listing(query, level, self.consistent[query, level].form.rows, FOLDER)
        ]

    @cached_property
    def forms(self) -> tuple[Form, ...]:
        """Return each table's `Form`, given the published histograms and first counts."""
        return forms_with_first_counts(
            forms_with(self.widest, self.clips), self.folder, self._check_footer
        )

    @cached_property
    def widest(self) -> tuple[Form, ...]:
        """Return each table's `Form` for the largest possible clips."""
        return forms(self.plan, self.calibrated)

    @cached_property
    def clips(self) -> Clips:
        """Return the clips recomputed from the published histograms."""
        return chosen_clips(self.widest, self.folder, self._check_footer)

    def _check_footer(self, form: Form, path: Path) -> None:
        """Check the sizes that a file's footer states, before the file is read at once."""
        rows = self.rows(form)
        with self.memory.table(path, form.published, rows, rows):
            pass

    def form(self, query: str, level: str) -> Form:
        """Return the `Form` of one table."""
        return next(f for f in self.forms if (f.query.name, f.level) == (query, level))

    @cached_property
    def added_up(self) -> Consistent | None:
        """Return the consistent tables, recomputed from the published tables, or None."""
        if self.plan.consistency is None:
            return None
        taking_part = set(members(self.plan))
        raw = [form for form in self.forms if (form.query.name, form.level) in taking_part]
        self.memory.check_consistent(sum(self.rows(form) for form in raw))
        for form in raw:
            self._check_footer(form, self.folder / listing(form.query.name, form.level, 0)[0].path)
        return from_published(self.plan, self.forms, self.folder)

    @cached_property
    def consistent(self) -> dict[tuple[str, str], ConsistentForm]:
        """Return each consistent table by query and level."""
        if self.added_up is None:
            return {}
        consistent_ones = consistent_forms(self.added_up, self.forms)
        return {(one.form.query.name, one.form.level): one for one in consistent_ones}

    def rows(self, form: Form) -> int:
        """Return the number of rows of a table. For discovered keys, read it from the receipt."""
        if not form.discovered:
            return form.rows
        path = listing(form.query.name, form.level, 0)[0].path
        said = [one["cells"] for one in self.receipt["tables"] if one.get("path") == path]
        if len(said) != 1 or type(said[0]) is not int or said[0] < 0:
            raise Differs(f"the receipt must list {path} once, with its number of cells")
        return said[0]
