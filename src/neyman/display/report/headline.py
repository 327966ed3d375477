"""Write a report's first sentence, its scale, and the kinds of disclosure that it limits."""

from __future__ import annotations

from fractions import Fraction

from neyman.accounting.literature import deployments
from neyman.accounting.semantics import digits
from neyman.accounting.semantics import sentences as words
from neyman.accounting.semantics.budget_warnings import budget_warnings
from neyman.accounting.semantics.unchecked_claims import one_row_each
from neyman.display.report import html as markup
from neyman.display.report.receipt_view import chosen, subject_of, totals_sentence, unit
from neyman.elements import Element, Node, element
from neyman.publishing.release.receipt_format import Receipt


def headline(receipt: Receipt) -> Element:
    """Return the section with the headline sentence and the warnings about the budget."""
    subject, rows = unit(receipt)
    level, power = chosen(receipt)
    adds, held = receipt.neighboring == "add-remove", receipt.guarantee.held
    confirm = "" if adds else "To confirm a claim is to report it as true. "
    sentence = words.power(level, power, subject_of(receipt), receipt.neighboring)
    open_claims = totals_sentence(receipt)
    assumed = one_row_each(receipt.unit.protects, receipt.plan.get("unit", {}).get("id"))
    return markup.section(
        "reveals",
        f"Disclosure risk for one {subject}",
        markup.paragraph(sentence, class_="sentence"),
        markup.paragraph(markup.strong(open_claims)) if open_claims else "",
        markup.paragraph(markup.strong(assumed)) if assumed else "",
        markup.note(
            f"{confirm}{words.claim(receipt.neighboring, subject, rows, held)} The limit covers "
            "attackers with unlimited computing power who know the plan and everyone else’s "
            f"records. It excludes group patterns that appear without this {subject}."
        ),
        *(markup.paragraph(text, class_="warning") for text in budget_warnings(receipt.budget)),
    )


def strength(receipt: Receipt) -> Node:
    """Draw the headline's power on a scale from no information to the data themselves."""
    level, power = chosen(receipt)
    census = Fraction(deployments.census_power(float(level)))
    parts = [(x - level) / (1 - level) for x in (power, census)]
    start = element("span", f"{digits.level_percent(level)}: no information")
    ends = element("span", start, element("span", "100%: the data themselves"), class_="ends")
    held = " Claims that an exact total can show have no limit." if receipt.guarantee.held else ""
    return [
        markup.bar(parts[0], mark=parts[1]),
        ends,
        "An attacker confirms at most ",
        markup.strong(digits.percent(power)),
        f" of true claims, and {digits.level_percent(level)} of false ones.{held} Upright "
        f"mark: {deployments.CENSUS}, {digits.percent(census)}. Chosen limit: "
        f"{receipt.budget.sentence}.",
    ]


def kinds_of_disclosure(receipt: Receipt) -> str:
    """Return which kinds of disclosure the headline limits [docs/semantics.md]."""
    kinds = (
        "Disclosure has three kinds. Identity disclosure: an attacker recognizes a person in "
        "the release. Attribute disclosure: they learn a value in a person’s record. "
        "Inferential disclosure: they infer either one with high probability. "
    )
    if receipt.neighboring == "add-remove":
        return (
            f"{kinds}The limit covers presence in the data. For a value of someone known to be "
            "present, use the limit for single attributes, or for a group of 2."
        )
    return (
        f"{kinds}Each of them confirms a claim about the record, and the limit covers such claims. "
        "Presence in the data is not protected."
    )
