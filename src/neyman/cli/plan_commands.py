"""Run ``neyman plan``: write, check, and improve a plan, before any data are read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from neyman.accounting.semantics.digits import many, number, plain
from neyman.cli.data_commands import reading_rule
from neyman.cli.terminal import (
    Json,
    PlanFile,
    answer,
    check_suffix,
    columns,
    failing,
    out,
    progress,
    working,
    writing,
)

if TYPE_CHECKING:
    from neyman.accounting.semantics.attacks import AttackSuccess
    from neyman.publishing.plan.plan import Plan
    from neyman.publishing.planning.accuracy import TableError
    from neyman.publishing.release.receipt_format import Scenario

MIN_SAVED_SHARE = 0.05  # of the squared error: less is not worth a word
MOST_CELLS, MOST_TABLES = 100_000, 30

plan_app = typer.Typer(
    help="Write a first plan, check it, split its budget, or print its schema.",
    no_args_is_help=True,
)


@plan_app.command("schema", epilog="Example: neyman plan schema")
def plan_schema() -> None:
    """Print the plan's JSON schema."""
    with failing(as_json=True):
        from neyman.publishing.plan.plan import Plan

        answer(Plan.schema(), True, lambda: None)


@plan_app.command(
    "init", epilog="Example: neyman plan init people.parquet --id person_id --out plan.toml"
)
def plan_init(
    data: Annotated[
        str,
        typer.Argument(
            help="The private table: one Parquet or CSV file, or an address as in neyman run, such "
            "as postgresql://role@host/db?table=people."
        ),
    ],
    into: Annotated[Path, typer.Option("--out", help="New file for the plan, TOML.")],
    unit: Annotated[
        str | None, typer.Option("--id", help="Column that names the privacy unit.")
    ] = None,
    protects: Annotated[str, typer.Option(help="Who is protected, in the singular.")] = "person",
    neighboring: Annotated[
        str, typer.Option(help="Neighboring datasets: replace-one or add-remove.")
    ] = "replace-one",
    delimiter: Annotated[
        str | None,
        typer.Option(help="Delimiter of a CSV file. If not given, its first line decides."),
    ] = None,
    encoding: Annotated[str, typer.Option(help="Encoding of a CSV file.")] = "utf-8",
    as_json: Json = False,
) -> None:
    """Write a first plan from the columns of a file or a table. No row is read.

    The plan is valid as it stands, and its comments say what to add. The first line of a CSV file
    must be its column names: they get into the plan.
    """
    from neyman.accounting.semantics.unchecked_claims import rows_not_stated
    from neyman.publishing.planning.first_plan import first_plan, schema_at, schema_of
    from neyman.publishing.planning.missing_values import SQL_RULE

    with failing(as_json):
        check_suffix(into, ".toml")
        if neighboring not in ("replace-one", "add-remove"):
            raise ValueError(
                f"--neighboring {neighboring!r}: must be 'replace-one' or 'add-remove'"
            )
        if not protects.strip():
            raise ValueError(f"--protects {protects!r}: must not be blank")
        file = Path(data)
        name, schema = schema_at(data) or (
            file.name.partition(".")[0],
            schema_of(file, delimiter, encoding),
        )
        text = first_plan(name, schema, id=unit, protects=protects, neighboring=neighboring)
        with writing(into), into.open("x", encoding="utf-8") as file:
            file.write(text)
        typed = all(kind is not None for _, kind in schema.columns)
        warning = rows_not_stated(protects, unit, rows_given=False)

        def show() -> None:
            out.say(f"{into}: a plan with {many(len(schema.columns), 'column')}")
            out.say(SQL_RULE)
            if warning:
                out.say(f"Warning: {warning}")
            if not typed:
                out.print(
                    "A CSV file does not say what its columns hold, and no row was read: each is"
                    " text in the plan until you replace its type. The names are the file's first"
                    " line: check that it holds no person's data."
                )
            out.say(f"Read it, then: neyman plan check {into}")

        content = {
            "plan": str(into),
            "columns": len(schema.columns),
            "typed": typed,
            "warnings": [warning] if warning else [],
            "missing": SQL_RULE,
        }
        answer(content, as_json, show)


@plan_app.command("check", epilog="Example: neyman plan check plan.toml --concerning race")
def plan_check(
    plan: PlanFile,
    concerning: Annotated[
        list[str], typer.Option(help="Column or level whose risk to print.")
    ] = [],  # noqa: B006 (typer copies it)
    within: Annotated[
        str | None, typer.Option(help="With --concerning LEVEL: the level that the attacker knows.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a plan and report table errors.

    List each key file with its number of places. Warn about each list of public keys that looks
    like private records, and about a budget that protects almost nothing.

    With --concerning, print the risk for these attributes of one record, all of them together.
    """
    from neyman.accounting.semantics import sentences as words
    from neyman.accounting.semantics.budget_warnings import budget_warnings
    from neyman.publishing.plan.plan import Plan
    from neyman.publishing.plan.public_keys import key_lists, key_warnings
    from neyman.publishing.planning.accuracy import errors
    from neyman.publishing.planning.allocation import LIMITS as ALLOCATION_LIMITS
    from neyman.publishing.planning.allocation import best_split
    from neyman.publishing.planning.detail_notes import detail_notes
    from neyman.publishing.planning.disjoint_notes import disjoint_notes
    from neyman.publishing.planning.totals_notes import totals_notes
    from neyman.publishing.release.receipt import mechanism_list, scenario

    with failing(as_json):
        if within is not None and not concerning:
            raise ValueError(f"--within {within!r}: give --concerning a level below it as well")
        read = Plan.load(plan)
        with progress() as tell:
            tell("finding the least noise", 0.1)
            mechanisms = mechanism_list(read, read.calibrated())
            tables = errors(read)
            tell("comparing kinds of noise", 0.5)
            texts, fields = _noise_or_bounds(read)
            risks, place = _named_risks(read)
            asked = split = None
            if any(query.weight for query in read.queries) and not read.has_detail:
                tell("comparing shares", 0.7)
                split = best_split(read, work=ALLOCATION_LIMITS.quick_operations)
            if concerning:
                tell("finding what the attributes can move", 0.8)
                part = read.concerning(*concerning, within=within)
                asked = scenario(read, part, concerning, within)

        lists = key_lists(read)
        warnings = (*budget_warnings(read.budget), *key_warnings(read))
        warnings += (read.rows_not_stated,) if read.rows_not_stated else ()
        rules, details = disjoint_notes(read), detail_notes(read)
        notes = totals_notes(read)

        def show() -> None:
            out.say(f"{read.name}: {read.hash}")
            for line in (*_rows(read), *_tables(read)):
                out.say(line)
            for keys in lists:
                if keys.file is not None:
                    out.say(keys.text())
            for warning in warnings:
                out.say(f"Warning: {warning}")
            _show_errors(tables, read, gaps=True)
            if asked is not None:
                _show_scenario(asked, read.unit.protects)
            elif split is not None:
                out.say("\n" + " ".join(split.standing()))
                out.say(split.measured(read.unit.protects))
            elif (saved := _error_saving(read)) >= MIN_SAVED_SHARE:
                out.say(
                    f"\nWith other shares the tables' squared errors, each counted alike, sum to "
                    f"{100 * saved:.0f}% less: neyman plan split"
                )
            for text in (*notes, *rules, *details, *texts):
                out.say("\n" + text)
            out.say("\n" + reading_rule(read))
            _show_risks(risks, place, words.known(read.unit.protects, read.held), read.held)

        content = {
            "plan_hash": read.hash,
            "mechanisms": [part.to_dict() for part in mechanisms],
            "errors": [error.to_dict() for error in tables],
            **fields,
            "source": {**read.source.model_dump(), "rule": reading_rule(read)},
            "keys": [
                {"hierarchy": keys.hierarchy, "file": keys.file, "places": dict(keys.places)}
                for keys in lists
            ],
            "warnings": list(warnings),
            "attacks": [risk.to_dict() for risk in risks],
            "rows": list(_rows(read)),
            "disjoint": list(rules),
            "detail": list(details),
            **({"totals": list(notes)} if notes else {}),
            **({"tables": {t.name: t.to_dict() for t in read.tables}} if read.tables else {}),
            **({} if split is None else {"split": split.to_dict()}),
            **({} if asked is None else {"concerning": asked.to_dict()}),
        }
        answer(content, as_json, show)


@plan_app.command(
    "split", epilog="Example: neyman plan split plan.toml --weight race.county=4 --out split.toml"
)
def plan_split(
    plan: PlanFile,
    weight: Annotated[
        list[str],
        typer.Option(
            help="TABLE=NUMBER or QUERY=NUMBER: weight of its error. If not given, the plan's "
            "own weights count."
        ),
    ] = [],  # noqa: B006 (typer copies it)
    into: Annotated[
        Path | None, typer.Option("--out", help="New file for the plan with these shares.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Find the budget shares that minimize weighted error.

    The command minimizes the weighted sum of the tables' squared errors and explains each share.
    With a [consistency] section, the errors are those after least squares.
    """
    from neyman.publishing.plan.plan import Plan
    from neyman.publishing.planning.allocation import best_split
    from neyman.publishing.planning.bound_search import refuse_searched
    from neyman.publishing.planning.rewrite import rewritten

    with failing(as_json):
        check_suffix(into, ".toml")
        read = Plan.load(plan)
        refuse_searched(read)
        with working("finding the best shares"):
            split = best_split(read, dict(_weight(text) for text in weight))
        if into is not None:
            text = rewritten(plan.read_text(encoding="utf-8-sig"), split)
            if into.resolve().parent != plan.resolve().parent:
                raise ValueError(
                    f"--out {str(into)!r} must be in the folder of the plan, which may name files "
                    "beside it"
                )
            with writing(into), into.open("x", encoding="utf-8") as file:
                file.write(text)

        def show() -> None:
            table = columns("query", "level", "weight", "share", "before", "error")
            for part in split.parts:
                table.add_row(
                    part.query,
                    part.level,
                    str(part.weight),
                    str(part.share),
                    str(part.before),
                    f"× {part.error / part.error_before:.3f}",
                )
            out.print(table)
            for line in split.explained():
                out.say(line)
            if into is not None:
                out.say(str(into))

        answer(split.to_dict(), as_json, show)


@plan_app.command(
    "from-sql",
    epilog='Example: neyman plan from-sql plan.toml "SELECT sex, AVG(pay) FROM people GROUP BY '
    'sex" --clip pay=0,5000 --out new.toml',
)
def plan_from_sql(
    plan: Annotated[Path, typer.Argument(help="The plan that declares the columns, TOML.")],
    sql: Annotated[str, typer.Argument(help="A SELECT statement, or a file that ends in .sql.")],
    into: Annotated[Path, typer.Option("--out", help="New file for the plan, in the same folder.")],
    clip: Annotated[
        list[str],
        typer.Option(
            help="COLUMN=CLIP: 0,5000 or discover, the clip of a sum, a mean, or a quantile."
        ),
    ] = [],  # noqa: B006 (typer copies it)
    delta: Annotated[
        str | None, typer.Option(help="Chance that a discovered key of a single unit is published.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a new plan whose queries are those of a SELECT statement.

    The statement is translated and never executed. Each aggregate is a query, and all have the same
    share of the budget. The new plan leaves out HAVING, ORDER BY, and LIMIT: it publishes all rows.
    """
    from neyman.publishing.plan.plan import Plan
    from neyman.publishing.plan.plan_fields import PlanError, parse
    from neyman.publishing.plan.plan_sections import read_sections
    from neyman.publishing.plan.sql import translate
    from neyman.publishing.planning.rewrite import with_queries

    with failing(as_json):
        check_suffix(into, ".toml")
        if into.resolve().parent != plan.resolve().parent:
            raise ValueError(f"--out {str(into)!r} must be in the folder of the plan")
        text = Path(sql).read_text(encoding="utf-8-sig") if sql.endswith(".sql") else sql
        sections = read_sections(plan) | {"query": [{"measure": "count", "share": 1}]}
        clips, folder = dict(map(_clip, clip)), plan.parent
        statement = translate(text, parse(sections), clips, delta=delta, folder=folder)
        share = {"share": str(Fraction(1, len(statement.queries)))}
        queries = [{**query, **share} for query in statement.queries]
        derive = {**cast("dict[str, object]", sections.get("derive") or {}), **statement.derive}
        try:
            content = {**sections, "derive": derive, "query": queries}
            new = Plan.from_dict(content, folder=folder)
        except PlanError as error:
            raise statement.placed(error) from None
        before = plan.read_text(encoding="utf-8-sig")
        content = with_queries(before, queries, statement.derive, f"From SQL:\n{text}")
        if not _is_text_of(new, content, folder):
            raise ValueError(
                f"{plan}: the new columns and queries have no place in the text; write each "
                "derived column as its own section, [derive.name], below the other sections"
            )
        with writing(into), into.open("x", encoding="utf-8") as file:
            file.write(content)
        result = {"plan": str(into), "queries": queries, "derive": dict(statement.derive)}

        def show() -> None:
            for query in queries:
                out.say(f"{query['name']}: {query['measure']}, {query['share']} of the budget")
            for note in (*_rows(new), *statement.notes):
                out.say(note)
            out.say(f"Read it, then: neyman plan check {into}")

        answer({**result, "notes": list(statement.notes)}, as_json, show)


def _is_text_of(plan: Plan, text: str, folder: Path) -> bool:
    """Return True if a text of TOML is this plan, with equal fields."""
    from neyman.publishing.plan.plan import Plan
    from neyman.publishing.plan.plan_sections import sections_of

    try:
        read = Plan.from_dict(sections_of(text), folder=folder)
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


def _named_risks(plan: Plan) -> tuple[list[AttackSuccess], str]:
    """Return the risk of each usual attack, and a comparison of the plan with other deployments."""
    from neyman.accounting.literature.deployments import scale_sentence
    from neyman.accounting.semantics.attacks import usual_attacks
    from neyman.accounting.semantics.budget import AtMost, within_limit

    curve = plan.mechanism().tradeoff()
    level = float(plan.budget.level) if isinstance(plan.budget, AtMost) else 0.05
    power = within_limit(plan.budget, "power", curve.power(level), level).upper
    risks = [
        replace(attack.success(curve), neighboring=plan.unit.neighboring)
        for attack in usual_attacks()
    ]
    return risks, scale_sentence(level, max(level, power))


def _show_risks(
    risks: Sequence[AttackSuccess], place: str, subject: str, held: Sequence[str]
) -> None:
    """Print the comparison ``place``, a sentence per attack, and the conditions of all attacks."""
    from neyman.accounting.semantics.sentences import held_conditions

    conditions = dict.fromkeys(held_conditions(held))
    conditions |= dict.fromkeys(each for risk in risks for each in risk.conditions)
    lines = [f"\n{place}", *(risk.sentence(subject) for risk in risks)]
    for line in (*lines, f"Conditions: {' '.join(conditions)}"):
        out.say(line)


def calibrate_plan(
    path: Path,
    budget: dict[str, float],
    error: tuple[str, float] | None,
    interval: bool,
    consistent: bool,
    into: Path | None,
    as_json: bool,
) -> None:
    """Run ``neyman calibrate plan.toml``: print the cost of an error, or errors at a guarantee.

    Exactly one is given: ``error``, a table and its target, or ``budget``, fields of a plan's
    budget. The plan's own budget is ignored. ``into`` is the SVG file for the curve.
    """
    from neyman.accounting.semantics import sentences as words
    from neyman.accounting.semantics.digits import exact_text
    from neyman.cli.calibrate_command import at_error, at_guarantee, figure
    from neyman.publishing.plan.plan import Plan

    with failing(as_json):
        if (error is None) == (not budget):
            raise ValueError(
                "give --error with a table and a number, or one target (--zcdp, --gdp, --power "
                "with --level, --success with --baseline, --epsilon with --delta), and not both"
            )
        if error is None and (interval or consistent):
            raise ValueError("--interval and --consistent modify --error; give --error")
        check_suffix(into, ".svg")
        plan = Plan.load(path)
        with working("finding the noise"):
            if error is None:
                calibrated = at_guarantee(plan, budget)
            else:
                calibrated = at_error(plan, *error, interval=interval, consistent=consistent)
        if into is not None:
            with writing(into):
                into.write_text(figure(calibrated), encoding="utf-8")

        def show() -> None:
            _show_errors(calibrated.errors, plan)
            point = calibrated.point
            also = "" if calibrated.delta is None else f', delta = "{exact_text(calibrated.delta)}"'
            out.say(f'\n[budget] zcdp = "{exact_text(calibrated.rho)}"{also}')
            out.say(
                f"epsilon {words.number(point.epsilon)} at delta 1e-6; power "
                f"{words.percent(point.power)} at level 5%\n"
            )
            table = columns(f"error of {calibrated.named}", "rho", "epsilon", "power", "")
            for at in calibrated.curve:
                mark = "●" if math.isclose(at.error, point.error, rel_tol=1e-6) else "·"
                bar = "█" * max(1, round(24 * at.power))
                table.add_row(
                    f"{at.error:.4g} {mark}",
                    words.number(at.rho),
                    words.number(at.epsilon),
                    words.percent(at.power),
                    bar,
                )
            out.print(table)
            if into is not None:
                out.say(str(into))

        answer(calibrated.to_dict(), as_json, show)


def _rows(plan: Plan) -> Iterator[str]:
    """Yield sentences on the guarantee's assumption, the rows that count, and missing values."""
    from neyman.publishing.planning.counted_rows import counted_rows
    from neyman.publishing.planning.missing_values import missing_by_sentence

    if plan.assumption and not plan.rows_not_stated:  # the warning states it, too
        yield plan.assumption
    yield " ".join(filter(None, counted_rows(plan)))
    for sentence, names in missing_by_sentence(plan).items():
        yield f"{', '.join(names)}: {sentence}"


def _tables(plan: Plan) -> Iterator[str]:
    """Yield one line per private table, if the plan has several."""
    if not plan.tables:
        return
    subject = plan.unit.protects
    bound = many(plan.unit.rows, "row")
    yield f"{plan.table}: up to {bound} per {subject}, named by {plan.unit.id}"
    for table in plan.tables:
        joined = f"; joins {', '.join(table.join)}" if table.join else ""
        rule = f"; duplicates: {table.duplicates}" if table.duplicates else ""
        bound = many(table.rows, "row")
        yield f"{table.name}: up to {bound} per {subject}, named by {table.id}{joined}{rule}"


def _noise_or_bounds(plan: Plan) -> tuple[tuple[str, ...], dict[str, object]]:
    """Return sentences about the kind of noise, or about bounds from the data, and JSON fields."""
    from neyman.publishing.planning.bound_search import search_notes, searched
    from neyman.publishing.planning.noise_kind import noise_choice

    if searched(plan):
        notes = search_notes(plan)
        return notes, {"bounds": list(notes)}
    noise = noise_choice(plan)
    return (noise.text(),), {"noise": noise.to_dict()}


def _error_saving(plan: Plan) -> float:
    """Return the share of the squared error that the best budget shares save.

    Return 0 if the search would take long.
    """
    from neyman.publishing.planning.allocation import best_split
    from neyman.publishing.planning.bound_search import searched

    if searched(plan) or plan.has_detail:
        return 0.0
    cells = sum(entry.cells or 0 for entry in plan.entries())
    if cells > MOST_CELLS or not 1 < len(plan.entries()) <= MOST_TABLES:
        return 0.0
    split = best_split(plan)
    return 1 - split.value / split.before


def _weight(text: str) -> tuple[str, str]:
    name, mark, number = text.rpartition("=")
    if not (name and mark and number):
        raise ValueError(f"--weight {text!r} must be TABLE=NUMBER, such as race.county=4")
    return name, number


def _show_errors(tables: Sequence[TableError], plan: Plan, *, gaps: bool = False) -> None:
    joint = any(error.consistent for error in tables)
    weights = {(q.name, level): weight for q in plan.queries for level, weight in q.weight}
    head = ["query", "level", "cells", *(["weight"] if weights else []), "share"]
    bounded = gaps and any(error.gap for error in tables)
    head += ["standard error", "90%", *(["consistent"] if joint else [])]
    head += ["× least"] if bounded else []
    table = columns(*head)
    for error in tables:
        weight = plain(weights.get((error.query, error.level), Fraction(1))) if error.share else ""
        row = [
            error.query,
            error.level,
            "found" if error.cells is None else f"{error.cells:,}",
            *([weight] if weights else []),
            str(error.share),
            "see below" if error.standard_error is None else f"{error.standard_error:.4g}",
            "" if error.half_width is None else f"± {error.half_width:g}",
        ]
        row += [_range(error.consistent)] if joint else []
        table.add_row(*row, *([_gap(error)] if bounded else []))
    out.print(table)
    if bounded:
        from neyman.accounting.optimality.table_gap import GAP

        out.say("× least: " + GAP.format("this number of"))
    for error in tables:
        if error.threshold is not None and error.published_from is not None:
            out.say(
                f"{error.name}: a key is published if its noisy number reaches "
                f"{many(error.threshold, plan.unit.protects)}."
                f" With {many(error.published_from, plan.unit.protects)}, a key is published with"
                " probability 95% or more."
            )
    ratios = [error for error in tables if error.by_rows]
    if not ratios:
        return
    rows = [n for n, _, _ in ratios[0].by_rows]
    table = columns("at most, if a cell counts", *(many(n, "row") for n in rows))
    for error in ratios:
        name = f"rank in {error.name}" if error.by_rank else error.name
        shown = [f"{number(e)} (± {number(half)})" for _, e, half in error.by_rows]
        table.add_row(name, *shown)
    out.print()
    out.print(table)


def _gap(error: TableError) -> str:
    """Return an error divided by the least possible error, and for a mean the rows it assumes."""
    if error.gap is None:
        return ""
    times = number(error.gap)
    return f"{times} ({error.by_rows[-1][0]:,} rows)" if error.by_rows else times


def _range(ends: tuple[float, float] | None) -> str:
    if ends is None:
        return ""
    low, high = (f"{end:.4g}" for end in ends)
    return low if low == high else f"{low} to {high}"


def _show_scenario(asked: Scenario, protects: str) -> None:
    from neyman.accounting.semantics import sentences as words
    from neyman.display.report.attribute_sections import belief_sentences, power_points
    from neyman.display.report.receipt_view import about

    if asked.no_limit:
        out.say(
            f"\nAbout one {protects}’s {about(asked)}: no limit, because a change of it moves an "
            "exact total."
        )
        return
    table = columns("false positive rate", "true positive rate, at most")
    for level, power in power_points(asked.power, asked.rho):
        table.add_row(words.percent(level, up=False), words.percent(power))
    tables = ", ".join(asked.tables) or "no table"
    out.say(f"\nAbout one {protects}’s {about(asked)}, from {tables}:")
    out.print(table)
    out.say(f"rho {words.number(asked.rho.upper)}")
    said = words.concerning(
        asked.attributes,
        *power_points(asked.power, asked.rho)[1],
        subject=protects,
        within=asked.within,
    )
    for text in (said, *belief_sentences(asked, protects)):
        out.say("\n" + text)
