"""Run ``neyman plan``: write, check, and improve a plan, before any data are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, cast

import neyman
from neyman import accounting, display, publishing
from neyman.accounting.semantics.digits import many, number, plain
from neyman.accounting.semantics.unchecked_claims import rows_not_stated
from neyman.cli.commands import command
from neyman.cli.data_commands import reading_rule
from neyman.cli.terminal import Answer, check_suffix, columns, progress, working, write

if TYPE_CHECKING:
    from rich.console import RenderableType

    from neyman.accounting.semantics.attacks import AttackSuccess
    from neyman.publishing.planning.accuracy import TableError
    from neyman.publishing.planning.allocation import Split
    from neyman.publishing.release.receipt_format import Scenario

MIN_SAVED_SHARE = 0.05  # of the squared error: less is not worth a word
MOST_CELLS, MOST_TABLES = 100_000, 30


@command("plan schema", "")
def plan_schema() -> Answer:
    """Print the plan's JSON schema."""
    return Answer(neyman.Plan.schema())


@command("plan init", "people.parquet --id person_id --out plan.toml")
def plan_init(
    data: str,
    *,
    out: Path,
    id: str | None = None,  # noqa: A002 (the field of the unit)
    protects: str = "person",
    neighboring: str = "replace-one",
    delimiter: str | None = None,
    encoding: str = "utf-8",
) -> Answer:
    """Write a first plan from the columns of a file or a table. No row is read.

    The plan is valid as it stands, and its comments say what to add. The first line of a CSV file
    must be its column names: they get into the plan.

    Args:
        data: The private table: one Parquet or CSV file, or an address as in neyman run, such as
            postgresql://role@host/db?table=people.
        out: New file for the plan, TOML.
        id: Column that names the privacy unit.
        protects: Who is protected, in the singular.
        neighboring: Neighboring datasets: replace-one or add-remove.
        delimiter: Delimiter of a CSV file. If not given, its first line decides.
        encoding: Encoding of a CSV file.
    """
    from neyman.publishing.planning.first_plan import first_plan, schema_at, schema_of

    check_suffix(out, ".toml")
    if neighboring not in ("replace-one", "add-remove"):
        raise ValueError(f"--neighboring {neighboring!r}: must be 'replace-one' or 'add-remove'")
    if not protects.strip():
        raise ValueError(f"--protects {protects!r}: must not be blank")
    file = Path(data)
    name, schema = schema_at(data) or (
        file.name.partition(".")[0],
        schema_of(file, delimiter, encoding),
    )
    text = first_plan(name, schema, id=id, protects=protects, neighboring=neighboring)
    write(out, text)
    types = [kind for _, kind in schema.columns]
    warnings = list(filter(None, [rows_not_stated(protects, id, rows_given=False)]))
    untyped = (
        "A CSV file does not say what its columns hold, and no row was read: each is"
        " text in the plan until you replace its type. The names are the file's first"
        " line: check that it holds no person's data."
    )
    lines = [
        f"{out}: a plan with {many(len(types), 'column')}",
        publishing.SQL_RULE,
        *(f"Warning: {warning}" for warning in warnings),
        *[untyped] * (None in types),
        f"Read it, then: neyman plan check {out}",
    ]
    content = {
        "plan": str(out),
        "columns": len(types),
        "typed": None not in types,
        "warnings": warnings,
        "missing": publishing.SQL_RULE,
    }
    return Answer(content, lines)


@command("plan check", "plan.toml --concerning race")
def plan_check(
    plan: Path,
    *,
    concerning: list[str] = [],  # noqa: B006 (typer copies it)
    within: str | None = None,
) -> Answer:
    """Check a plan and report table errors.

    List each key file with its number of places. Warn about each list of public keys that looks
    like private records, and about a budget that protects almost nothing.

    With --concerning, print the risk for these attributes of one record, all of them together.

    Args:
        plan: The plan, a TOML file.
        concerning: Column or level whose risk to print.
        within: With --concerning LEVEL: the level that the attacker knows.
    """
    if within is not None and not concerning:
        raise ValueError(f"--within {within!r}: give --concerning a level below it as well")
    read = neyman.Plan.load(plan)
    with progress() as tell:
        tell("finding the least noise", 0.1)
        mechanisms = publishing.mechanism_list(read, read.calibrated())
        tables = publishing.errors(read)
        tell("comparing kinds of noise", 0.5)
        texts, fields = _noise_or_bounds(read)
        risks, place = _named_risks(read)
        split, asked = _weighted_split(read, tell), None
        shares = _share_lines(read, split)
        if concerning:
            tell("finding what the attributes can move", 0.8)
            part = read.concerning(*concerning, within=within)
            asked = publishing.scenario(read, part, concerning, within)
            shares = _scenario_lines(asked, read.unit.protects)
    lists, warnings = publishing.key_lists(read), _warnings(read)
    rules, details = publishing.disjoint_notes(read), publishing.detail_notes(read)
    notes, rule = publishing.totals_notes(read), reading_rule(read)
    rows = list(_rows(read))
    content = {
        "plan_hash": read.hash,
        "mechanisms": [part.to_dict() for part in mechanisms],
        "errors": [error.to_dict() for error in tables],
        **fields,
        "source": {**read.source.model_dump(), "rule": rule},
        "keys": [
            {"hierarchy": keys.hierarchy, "file": keys.file, "places": dict(keys.places)}
            for keys in lists
        ],
        "warnings": warnings,
        "attacks": [risk.to_dict() for risk in risks],
        "rows": rows,
        "disjoint": list(rules),
        "detail": list(details),
        **({"totals": list(notes)} if notes else {}),
        **({"tables": {t.name: t.to_dict() for t in read.tables}} if read.tables else {}),
        **({} if split is None else {"split": split.to_dict()}),
        **({} if asked is None else {"concerning": asked.to_dict()}),
    }
    lines = chain(
        [f"{read.name}: {read.hash}", *rows, *_tables(read)],
        (keys.text() for keys in lists if keys.file is not None),
        (f"Warning: {warning}" for warning in warnings),
        error_lines(tables, read, gaps=True),
        shares,
        (f"\n{text}" for text in (*notes, *rules, *details, *texts, rule, place)),
        _risk_lines(risks, read),
    )
    return Answer(content, lines)


@command("plan approve", "plan.toml --ledger ledger.db --who 'A. Person' --key approver")
def plan_approve(
    file: Path,
    *,
    ledger: str,
    who: str,
    purpose: str = "",
    until: str = "",
    key: Path | None = None,
    revoke: bool = False,
    checkpoint: Path | None = None,
) -> Answer:
    """Approve exactly this plan as a second person, or take the approval back.

    A dataset that was registered with --approval required refuses every other charge.

    Args:
        file: The plan, a TOML file. Its key files are part of what is approved.
        ledger: The ledger: a path, or postgresql://...
        who: Who approves it.
        purpose: What the release is for. Its report prints it.
        until: Last day on which it may be run, 2027-12-31, by this machine's clock.
        key: Private key (PEM) of the approver, which signs the approval.
        revoke: Take the approval back, for the future.
        checkpoint: Checkpoint file. A ledger that is behind it is refused.
    """
    plan = neyman.Plan.load(file)
    content = {"dataset": plan.dataset, "plan": plan.name, "plan_hash": plan.hash, "who": who}
    with neyman.Ledger(ledger, checkpoint=checkpoint) as book:
        if revoke:
            book.revoke(plan.dataset, plan.hash, who=who)
            line = f"{plan.hash} of {plan.dataset} is not approved anymore. What was charged stays."
            return Answer(content | {"approved": False}, [line])
        given = publishing.approve(plan, book, who=who, purpose=purpose, until=until, key=key)
    signed = "signed" if given.public else publishing.UNSIGNED
    return Answer(
        content | {"approved": True, "signed": bool(given.public)},
        [f"{plan.name} ({plan.hash}) is approved by {who}, {signed}"],
    )


@command("plan split", "plan.toml --weight race.county=4 --out split.toml")
def plan_split(
    plan: Path,
    *,
    weight: list[str] = [],  # noqa: B006 (typer copies it)
    out: Path | None = None,
) -> Answer:
    """Find the budget shares that minimize weighted error.

    The command minimizes the weighted sum of the tables' squared errors and explains each share.
    With a [consistency] section, the errors are those after least squares.

    Args:
        plan: The plan, a TOML file.
        weight: TABLE=NUMBER or QUERY=NUMBER: weight of its error. If not given, the plan's own
            weights count.
        out: New file for the plan with these shares.
    """
    check_suffix(out, ".toml")
    read = neyman.Plan.load(plan)
    publishing.refuse_searched(read)
    with working("finding the best shares"):
        split = publishing.best_split(read, dict(map(_weight, weight)))
    if out is not None:
        text = publishing.rewritten(plan.read_text(encoding="utf-8-sig"), split)
        _check_folder(out, plan, ", which may name files beside it")
        write(out, text)
    rows = (
        (
            part.query,
            part.level,
            str(part.weight),
            str(part.share),
            str(part.before),
            f"× {part.error / part.error_before:.3f}",
        )
        for part in split.parts
    )
    table = columns(("query", "level", "weight", "share", "before", "error"), rows)
    lines = [table, *split.explained(), *([] if out is None else [str(out)])]
    return Answer(split.to_dict(), lines)


def _check_folder(out: Path, plan: Path, reason: str = "") -> None:
    if out.resolve().parent != plan.resolve().parent:
        raise ValueError(f"--out {str(out)!r} must be in the folder of the plan{reason}")


@command(
    "plan from-sql",
    'plan.toml "SELECT sex, AVG(pay) FROM people GROUP BY sex" --clip pay=0,5000 --out new.toml',
)
def plan_from_sql(
    plan: Path,
    sql: str,
    *,
    out: Path,
    clip: list[str] = [],  # noqa: B006 (typer copies it)
    delta: str | None = None,
) -> Answer:
    """Write a new plan whose queries are those of a SELECT statement.

    The statement is translated and never executed. Each aggregate is a query, and all have the same
    share of the budget. The new plan leaves out HAVING, ORDER BY, and LIMIT: it publishes all rows.

    Args:
        plan: The plan that declares the columns, TOML.
        sql: A SELECT statement, or a file that ends in .sql.
        out: New file for the plan, in the same folder.
        clip: COLUMN=CLIP: 0,5000 or discover, the clip of a sum, a mean, or a quantile.
        delta: Chance that a discovered key of a single unit is published.
    """
    from neyman.publishing.plan.sql import translate

    check_suffix(out, ".toml")
    _check_folder(out, plan)
    text = Path(sql).read_text(encoding="utf-8-sig") if sql.endswith(".sql") else sql
    sections = publishing.read_sections(plan) | {"query": [{"measure": "count", "share": 1}]}
    clips, folder = dict(map(_clip, clip)), plan.parent
    statement = translate(text, publishing.parse(sections), clips, delta=delta, folder=folder)
    share = {"share": str(Fraction(1, len(statement.queries)))}
    queries = [{**query, **share} for query in statement.queries]
    derive = {**cast("dict[str, object]", sections.get("derive") or {}), **statement.derive}
    try:
        new = neyman.Plan.from_dict({**sections, "derive": derive, "query": queries}, folder=folder)
    except publishing.PlanError as error:
        raise statement.placed(error) from None
    before = plan.read_text(encoding="utf-8-sig")
    content = publishing.with_queries(before, queries, statement.derive, f"From SQL:\n{text}")
    if not _is_text_of(new, content, folder):
        raise ValueError(
            f"{plan}: the new columns and queries have no place in the text; write each "
            "derived column as its own section, [derive.name], below the other sections"
        )
    write(out, content)
    lines = [
        *(f"{one['name']}: {one['measure']}, {one['share']} of the budget" for one in queries),
        *_rows(new),
        *statement.notes,
        f"Read it, then: neyman plan check {out}",
    ]
    result = {"plan": str(out), "queries": queries, "derive": dict(statement.derive)}
    return Answer({**result, "notes": list(statement.notes)}, lines)


def _is_text_of(plan: neyman.Plan, text: str, folder: Path) -> bool:
    """Return True if a text of TOML is this plan, with equal fields."""
    try:
        read = neyman.Plan.from_dict(publishing.sections_of(text), folder=folder)
        return read.canonical() == plan.canonical()
    except (ValueError, RecursionError):
        return False


def _clip(text: str) -> tuple[str, object]:
    """Return a column and its clip from "COLUMN=CLIP". The clip is a list of numbers, or a word."""
    name, _, ends = text.rpartition("=")
    if not name:
        raise ValueError(f"{text!r} must be COLUMN=LOW,HIGH, such as income=0,100000")
    numbers = [int(end) if end.removeprefix("-").isdecimal() else end for end in ends.split(",")]
    return name, numbers if len(numbers) > 1 else ends


def _weight(text: str) -> tuple[str, str]:
    name, mark, weight = text.rpartition("=")
    if not (name and mark and weight):
        raise ValueError(f"--weight {text!r} must be TABLE=NUMBER, such as race.county=4")
    return name, weight


def _named_risks(plan: neyman.Plan) -> tuple[list[AttackSuccess], str]:
    """Return the risk of each usual attack, and a comparison of the plan with other deployments."""
    curve, budget = plan.mechanism().tradeoff(), plan.budget
    level = float(budget.level) if isinstance(budget, accounting.AtMost) else 0.05
    power = accounting.within_limit(budget, "power", curve.power(level), level).upper
    risks = [
        replace(attack.success(curve), neighboring=plan.unit.neighboring)
        for attack in accounting.usual_attacks()
    ]
    return risks, accounting.scale_sentence(level, max(level, power))


def _risk_lines(risks: Sequence[AttackSuccess], plan: neyman.Plan) -> Iterator[str]:
    """Yield a sentence per attack, and the conditions of all attacks."""
    words = accounting.sentences
    subject = words.known(plan.unit.protects, plan.held)
    for risk in risks:
        yield risk.sentence(subject)
    conditions = dict.fromkeys(words.held_conditions(plan.held))
    conditions |= dict.fromkeys(each for risk in risks for each in risk.conditions)
    yield f"Conditions: {' '.join(conditions)}"


def _rows(plan: neyman.Plan) -> Iterator[str]:
    """Yield sentences on the guarantee's assumption, the rows that count, and missing values."""
    if plan.assumption and not plan.rows_not_stated:  # the warning states it, too
        yield plan.assumption
    yield " ".join(filter(None, publishing.counted_rows(plan)))
    for sentence, names in publishing.missing_by_sentence(plan).items():
        yield f"{', '.join(names)}: {sentence}"


def _tables(plan: neyman.Plan) -> Iterator[str]:
    """Yield one line per private table, if the plan has several."""
    if not plan.tables:
        return
    subject, unit = plan.unit.protects, plan.unit
    yield f"{plan.table}: up to {many(unit.rows, 'row')} per {subject}, named by {unit.id}"
    for table in plan.tables:
        joined = f"; joins {', '.join(table.join)}" if table.join else ""
        rule = f"; duplicates: {table.duplicates}" if table.duplicates else ""
        bound = many(table.rows, "row")
        yield f"{table.name}: up to {bound} per {subject}, named by {table.id}{joined}{rule}"


def _warnings(plan: neyman.Plan) -> list[str]:
    """Return warnings about the budget, the keys, and rows that nothing states."""
    unstated = filter(None, [plan.rows_not_stated])
    return [*accounting.budget_warnings(plan.budget), *publishing.key_warnings(plan), *unstated]


def _weighted_split(plan: neyman.Plan, tell: Callable[[str, float], None]) -> Split | None:
    """Return the best shares for the plan's own weights, or None if it has none."""
    from neyman.publishing.planning.allocation import LIMITS as ALLOCATION_LIMITS

    if plan.has_detail or not any(query.weight for query in plan.queries):
        return None
    tell("comparing shares", 0.7)
    return publishing.best_split(plan, work=ALLOCATION_LIMITS.quick_operations)


def _noise_or_bounds(plan: neyman.Plan) -> tuple[tuple[str, ...], dict[str, object]]:
    """Return sentences about the kind of noise, or about bounds from the data, and JSON fields."""
    if publishing.searched(plan):
        notes = publishing.search_notes(plan)
        return notes, {"bounds": list(notes)}
    noise = publishing.noise_choice(plan)
    return (noise.text(),), {"noise": noise.to_dict()}


def _share_lines(plan: neyman.Plan, split: Split | None) -> Iterator[str]:
    """Yield how the shares compare with the best, unless the search would take long."""
    if split is not None:
        yield "\n" + " ".join(split.standing())
        yield split.measured(plan.unit.protects)
        return
    entries = plan.entries()
    cells = sum(entry.cells or 0 for entry in entries)
    if publishing.searched(plan) or plan.has_detail or cells > MOST_CELLS:
        return
    if 1 < len(entries) <= MOST_TABLES:
        best = publishing.best_split(plan)
        saved = 1 - best.value / best.before
        if saved >= MIN_SAVED_SHARE:
            yield (
                f"\nWith other shares the tables' squared errors, each counted alike, sum to "
                f"{100 * saved:.0f}% less: neyman plan split"
            )


def error_lines(
    tables: Sequence[TableError], plan: neyman.Plan, *, gaps: bool = False
) -> Iterator[RenderableType]:
    """Yield the error of each table of a plan, and of ratios at numbers of rows.

    Args:
        tables: the errors.
        plan: the plan.
        gaps: True to compare the errors with the least possible errors.
    """
    weights = {(q.name, level): weight for q in plan.queries for level, weight in q.weight}
    rows = [_error_row(error, weights, gaps) for error in tables]
    heads = [
        head
        for head in rows[0]
        if head not in ("weight", "consistent", "× least") or any(row[head] for row in rows)
    ]
    yield columns(heads, ([row[head] for head in heads] for row in rows))
    if "× least" in heads:
        yield "× least: " + accounting.GAP.format("this number of")
    for error in tables:
        if error.threshold is not None and error.published_from is not None:
            yield (
                f"{error.name}: a key is published if its noisy number reaches "
                f"{many(error.threshold, plan.unit.protects)}."
                f" With {many(error.published_from, plan.unit.protects)}, a key is published with"
                " probability 95% or more."
            )
    ratios = [error for error in tables if error.by_rows]
    if ratios:
        yield ""
        yield _ratio_table(ratios)


def _ratio_table(ratios: Sequence[TableError]) -> RenderableType:
    counts = (many(n, "row") for n, _, _ in ratios[0].by_rows)
    rows = (
        (
            f"rank in {error.name}" if error.by_rank else error.name,
            *(f"{number(size)} (± {number(half)})" for _, size, half in error.by_rows),
        )
        for error in ratios
    )
    return columns(("at most, if a cell counts", *counts), rows)


def _error_row(
    error: TableError, weights: dict[tuple[str, str], Fraction], gaps: bool
) -> dict[str, str]:
    """Return the cells of a table's error by their column."""
    weight = weights.get((error.query, error.level), Fraction(1))
    low, high = (f"{end:.4g}" for end in error.consistent or (0, 0))
    least = number(error.gap) if gaps and error.gap is not None else ""
    # The least error of a mean holds at a number of rows.
    at = f" ({error.by_rows[-1][0]:,} rows)" if least and error.by_rows else ""
    return {
        "query": error.query,
        "level": error.level,
        "cells": "found" if error.cells is None else f"{error.cells:,}",
        "weight": plain(weight) if weights and error.share else "",
        "share": str(error.share),
        "standard error": "see below"
        if error.standard_error is None
        else f"{error.standard_error:.4g}",
        "90%": "" if error.half_width is None else f"± {error.half_width:g}",
        "consistent": (low if low == high else f"{low} to {high}") if error.consistent else "",
        "× least": f"{least}{at}",
    }


def _scenario_lines(asked: Scenario, protects: str) -> Iterator[RenderableType]:
    words = accounting.sentences
    subject = f"{protects}’s {words.about(asked.attributes, asked.within)}"
    if asked.no_limit:
        yield f"\nAbout one {subject}: no limit, because a change of it moves an exact total."
        return
    points = display.power_points(asked.power, asked.rho)
    yield f"\nAbout one {subject}, from {', '.join(asked.tables) or 'no table'}:"
    rows = ((words.percent(level, up=False), words.percent(power)) for level, power in points)
    yield columns(("false positive rate", "true positive rate, at most"), rows)
    yield f"rho {words.number(asked.rho.upper)}"
    yield "\n" + words.concerning(
        asked.attributes, *points[1], subject=protects, within=asked.within
    )
    for text in display.belief_sentences(asked, protects):
        yield f"\n{text}"
