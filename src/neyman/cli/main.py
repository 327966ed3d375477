"""Run the command line. Answers go to stdout (``--json`` for machines), progress to stderr.

Exit codes: 0 success, 1 internal error, 2 invalid input, 3 over budget, 4 interrupted, 5
verification failed.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neyman import __version__
from neyman.cli.data_commands import data_app
from neyman.cli.ledger_commands import CheckpointFile, ledger_app
from neyman.cli.plan_commands import calibrate_plan, plan_app
from neyman.cli.release_commands import audit, explore, synthesize
from neyman.cli.terminal import (
    CHARGED,
    Engine,
    Json,
    Master,
    Memory,
    PlanFile,
    answer,
    bound_tables,
    check_suffix,
    columns,
    ends,
    failed,
    failing,
    out,
    progress,
    standard_streams,
    warn,
    working,
    writing,
)
from neyman.extras import advice
from neyman.numerics.bound import Bound, directed

if TYPE_CHECKING:
    from neyman.accounting.calibrate import Budget
    from neyman.publishing.release.folder import Release

app = typer.Typer(
    help="Measure, calibrate, publish, and verify differential privacy.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(plan_app, name="plan")
app.add_typer(data_app, name="data")
app.add_typer(ledger_app, name="ledger")

_Usage: Any = typer.BadParameter.__base__  # raised by typer for invalid arguments
MAX_MU_RATIO = 1.5  # show a supremum up to this multiple of the nearest mu
_INTERRUPT_STATUS = 130  # typer's exit status after Ctrl-C


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"neyman {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            help="Print the version and exit.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Measure, calibrate, publish, and verify differential privacy."""


Mechanism = Annotated[
    str, typer.Argument(help="A mechanism: 'Gaussian(sigma=2) * 10 + Laplace(scale=20)'.")
]


@app.command(epilog="Example: neyman account 'Gaussian(sigma=2) * 10' --delta 1e-6")
def account(
    mechanism: Mechanism,
    delta: Annotated[list[float], typer.Option(help="Delta at which to report epsilon.")] = [1e-6],  # noqa: B006 (typer copies it)
    epsilon: Annotated[list[float], typer.Option(help="Epsilon at which to report delta.")] = [],  # noqa: B006
    level: Annotated[
        list[float], typer.Option(help="Level (false positive rate) at which to report power.")
    ] = [0.01, 0.05, 0.10],  # noqa: B006
    baseline: Annotated[
        list[float],
        typer.Option(
            help="Best chance of a right guess without the release, at which to report the success "
            "of re-identification, attribute inference, or reconstruction."
        ),
    ] = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Compute certified epsilon, delta, and power, and success at a baseline."""
    from neyman.accounting.literature.deployments import scale_sentence
    from neyman.accounting.semantics import sentences as words
    from neyman.accounting.semantics.attacks import PRIOR_CONDITION, conditions_of, stated_condition
    from neyman.cli.expression import mechanism_from
    from neyman.curves.tradeoff.queries import source_note
    from neyman.curves.tradeoff.safe_mu import USUAL_LEVELS

    with failing(as_json):
        described = mechanism_from(mechanism)
        curve = described.tradeoff()
        low, high = USUAL_LEVELS
        with working("computing bounds"):
            nearest = curve.nearest_gaussian()
            safe = curve.gdp(levels=USUAL_LEVELS)
            rows: list[tuple[str, dict[str, float], Bound]] = [
                *(
                    ("epsilon", {"delta": d}, bound)
                    for d, bound in zip(delta, curve.epsilons(delta), strict=True)
                ),
                ("safe_mu", {"low": low, "high": high}, safe.mu),
                *(
                    ("delta", {"epsilon": e}, bound)
                    for e, bound in zip(epsilon, curve.deltas(epsilon), strict=True)
                ),
                *(("power", {"level": a}, curve.power(a)) for a in dict.fromkeys([low, *level])),
                *(("success", {"baseline": b}, curve.success(b)) for b in baseline),
                ("advantage", {}, curve.advantage()),
                ("nearest_gaussian_mu", {}, nearest.mu),
                ("nearest_gaussian_distance", {}, nearest.distance),
                ("gdp", {}, curve.gdp()),
                ("zcdp", {}, curve.zcdp()),
                ("pure", {}, curve.pure()),
            ]

        def show() -> None:
            table = columns("question", "at least", "at most")
            for name, at, bound in rows:
                mu = {"gdp": bound.upper, "zcdp": math.sqrt(2 * bound.upper)}.get(name)
                if mu is not None and not mu <= MAX_MU_RATIO * nearest.mu.upper < math.inf:
                    continue  # the nearest Gaussian curve says more if rare losses decide
                # In full: a rounded level beside a bound of nine digits states a false bound.
                where = ", ".join(f"{k}={float(v)!r}".removesuffix(".0") for k, v in at.items())
                table.add_row(
                    f"{name}({where})",
                    directed(bound.lower, 9, up=False),
                    directed(bound.upper, 9, up=True),
                )
            note = source_note(curve.sources)
            out.say(repr(described))
            if note:
                out.say(note.strip())
            out.print(table)
            out.say(f"\nsafe_mu: {safe.sentence}. nearest_gaussian_mu is not a guarantee.")
            for statement in curve.statements:
                out.say(stated_condition(statement))
            powers = {at["level"]: bound for name, at, bound in rows if name == "power"}
            shown = [(a, powers[a]) for a in level]
            for a, bound in shown[len(shown) // 2 : len(shown) // 2 + 1]:
                if 0 < a < 1:
                    sentence = words.power(a, bound.upper, neighboring=curve.neighboring)
                    out.print(f"\n{note}{sentence}")
                    out.print(f"\n{note}{scale_sentence(a, max(a, bound.upper))}")
            if baseline:
                shared = (PRIOR_CONDITION, *conditions_of(curve.neighboring))
                out.print(f"\nConditions of success: {' '.join(shared)}")

        questions = [{"question": n, **at, **ends(b)} for n, at, b in rows]
        answer({"mechanism": described.to_dict(), "answers": questions}, as_json, show)


@app.command(epilog="Example: neyman calibrate 'Gaussian(x) * 10' --power 0.1 --level 0.05")
def calibrate(
    mechanism: Annotated[
        str,
        typer.Argument(
            help="A mechanism with x for the unknown, 'Gaussian(x) * 10', or a plan.toml."
        ),
    ],
    *,
    epsilon: Annotated[float | None, typer.Option(help="Target: epsilon, with --delta.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="With --epsilon: delta, 0 if not given.")
    ] = None,
    gdp: Annotated[float | None, typer.Option(help="Target: mu of Gaussian DP.")] = None,
    zcdp: Annotated[float | None, typer.Option(help="Target: rho of zCDP.")] = None,
    power: Annotated[
        float | None,
        typer.Option(help="Target: largest true positive rate of an attacker, with --level."),
    ] = None,
    level: Annotated[
        float | None, typer.Option(help="With --power: false positive rate of the attacker.")
    ] = None,
    success: Annotated[
        float | None, typer.Option(help="Target: largest chance of a right guess, with --baseline.")
    ] = None,
    baseline: Annotated[
        float | None,
        typer.Option(help="With --success: best chance of a right guess without the release."),
    ] = None,
    error: Annotated[
        tuple[str, float] | None,
        typer.Option(
            metavar="TABLE NUMBER", help="With a plan: a table and its target standard error."
        ),
    ] = None,
    interval: Annotated[
        bool, typer.Option("--interval", help="With --error: the number is half the 90% interval.")
    ] = False,
    consistent: Annotated[
        bool,
        typer.Option(
            "--consistent", help="With --error: the number is the error after least squares."
        ),
    ] = False,
    into: Annotated[
        Path | None, typer.Option("--out", help="With a plan: the SVG file for the curve.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Find the parameter value that just meets a target.

    With a plan (plan.toml), find the smallest privacy loss that gives a table its target error, as
    in --error 'county total' 25, or the smallest error of each table under a target.
    """
    options = {
        "epsilon": epsilon,
        "delta": delta,
        "gdp": gdp,
        "zcdp": zcdp,
        "power": power,
        "level": level,
        "success": success,
        "baseline": baseline,
    }
    budget = {name: value for name, value in options.items() if value is not None}
    if mechanism.endswith(".toml"):
        calibrate_plan(Path(mechanism), budget, error, interval, consistent, into, as_json)
        return
    from neyman.accounting.calibrate import calibrate as solve
    from neyman.cli.expression import mechanism_from

    with failing(as_json):
        if error is not None or interval or consistent or into is not None:
            raise ValueError(
                "--error, --interval, --consistent and --out are for a plan: give the path of a "
                "file that ends in .toml"
            )
        target = _target(budget)
        if mechanism_from(mechanism, x=1.0) == mechanism_from(mechanism, x=2.0):
            raise ValueError(
                f"mechanism = {mechanism!r} has no x: write x for the unknown number, "
                "as in 'Gaussian(x) * 10'"
            )
        with working("finding the parameter"):
            x = solve(lambda value: mechanism_from(mechanism, x=value), target)
        result = mechanism_from(mechanism, x=x)

        def show() -> None:
            out.print(f"x = {x!r}")
            out.say(repr(result))

        answer({"x": x, "mechanism": result.to_dict()}, as_json, show)


def _target(budget: Mapping[str, float]) -> Budget:
    from neyman.accounting.semantics.budget import at_most
    from neyman.curves.tradeoff import guarantees as families

    match list(budget):
        case ["epsilon"] | ["epsilon", "delta"]:
            return families.approximate(budget["epsilon"], budget.get("delta", 0.0))
        case ["gdp"]:
            return families.gdp(budget["gdp"])
        case ["zcdp"]:
            return families.zcdp(budget["zcdp"])
        case ["power", "level"]:
            return at_most(budget["power"], budget["level"])
        case ["success", "baseline"]:
            return at_most(success=budget["success"], baseline=budget["baseline"])
        case given:
            raise ValueError(
                "give one target: --epsilon with --delta, --gdp, --zcdp, --power with --level, or "
                "--success with --baseline; given: "
                + (", ".join(f"--{name}" for name in given) or "none")
            )


@app.command(
    epilog="Example: neyman run plan.toml --data people=people.parquet --ledger ledger.db"
    " --out release"
)
def run(
    plan: PlanFile,
    *,
    ledger: Annotated[str, typer.Option(help="The ledger: a path, or postgresql://...")],
    into: Annotated[Path, typer.Option("--out", help="Folder for the release, new or empty.")],
    data: Annotated[
        list[str],
        typer.Option(
            help="TABLE=PATH: the file of a private table. A plan that is published needs none."
        ),
    ] = [],  # noqa: B006 (typer copies it)
    engine: Engine = "duckdb",
    memory: Memory = None,
    master: Master = None,
    account: Annotated[
        str | None, typer.Option(help="Allocation to charge, such as team-a.")
    ] = None,
    charge_again: Annotated[
        bool,
        typer.Option(
            "--charge-again", help="Charge again a plan whose earlier run did not finish."
        ),
    ] = False,
    sign: Annotated[
        Path | None, typer.Option(help="Ed25519 private key (PEM) that signs the receipt.")
    ] = None,
    checkpoint: CheckpointFile = None,
    wait: Annotated[
        float, typer.Option(help="Seconds to wait for another run of this plan.")
    ] = 3600.0,
    as_json: Json = False,
) -> None:
    """Publish a release and charge the ledger."""
    from neyman.accounting.semantics.budget_warnings import budget_warnings
    from neyman.api import run as publish
    from neyman.ledger.ledger import Ledger
    from neyman.publishing.plan.plan import Plan

    with failing(as_json, CHARGED):
        bound = bound_tables(data)
        book = Ledger(ledger, checkpoint=checkpoint)
        read = Plan.load(plan)
        for warning in budget_warnings(read.budget):
            warn(warning)
        with progress() as tell:
            release = publish(
                read,
                bound or None,
                book,
                into,
                engine,
                memory=memory,
                master=master,
                account=account,
                charge_again=charge_again,
                sign=sign,
                wait=wait,
                progress=tell,
            )
        _say_release(release, into, as_json)


def _say_release(
    release: Release,
    folder: Path,
    as_json: bool,
    *,
    seconds: Mapping[str, float] | None = None,
    lines: Sequence[str] = (),
) -> None:
    """Print what was published, the attacker's power, and the charge. ``lines`` come last."""
    from neyman.accounting.semantics import sentences as words
    from neyman.accounting.semantics.digits import many
    from neyman.accounting.semantics.unchecked_claims import disjoint_parts, one_row_each
    from neyman.display.report.receipt_view import totals_sentence

    receipt = release.receipt
    paid = receipt.ledger
    at = next(p for p in receipt.guarantee.power if p.level == 0.05)

    def show() -> None:
        tables = [t for t in receipt.tables if t.path.endswith(".parquet")]
        cells = sum(t.cells for t in tables)
        large = sum(bool(t.without_csv) for t in tables)
        price = f"{words.number(paid.charged)} {paid.currency}"
        where = f"{paid.account} (entry {paid.entry})"
        if release.published_before:
            done = "Published before: the same"
            cost = f"Nothing was charged ({price} had been, to {where}); the data were not read."
        else:
            done, cost = "Released", f"Charged {price} to {where}."
        what = f"{many(cells, 'cell')} of {receipt.dataset}"
        out.say(f"{done} {what} into {folder}")
        subject = words.known(receipt.unit.protects, receipt.guarantee.held)
        out.say(words.power(at.level, at.upper, subject, receipt.neighboring))
        if text := totals_sentence(receipt):
            out.say(text)
        unit = receipt.plan.get("unit", {})
        if assumed := one_row_each(receipt.unit.protects, unit.get("id")):
            out.say(assumed)
        if large:
            are = "is" if large == 1 else "are"
            out.say(
                f"{many(large, 'table')} {are} too large for CSV, and published as Parquet alone."
            )
        if receipt.plan.get("part"):
            out.say(disjoint_parts(receipt.dataset, receipt.unit.protects))
        out.say(f"{cost} Read {folder / 'report.html'}")
        for line in lines:
            out.say(line)

    content = {
        "folder": str(folder),
        "published_before": release.published_before,
        "receipt": receipt.to_dict(),
        **({} if seconds is None else {"seconds": seconds}),
    }
    answer(content, as_json, show)


@app.command(epilog="Example: neyman verify release --key custodian.pub --ledger ledger.db")
def verify(
    receipt: Annotated[Path, typer.Argument(help="A receipt.json or its folder.")],
    key: Annotated[
        Path | None,
        typer.Option(help="The custodian's public key, which must have signed the receipt."),
    ] = None,
    ledger: Annotated[
        str | None, typer.Option(help="The ledger, which must have been charged for these files.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Checkpoint that the ledger must have passed.")
    ] = None,
    memory: Annotated[
        str, typer.Option(help="Largest memory, such as 4GB. A file that needs more fails.")
    ] = "4GB",
    as_json: Json = False,
) -> None:
    """Verify a release without the data.

    With --key, also check who signed the receipt. With --ledger, also check that this ledger was
    charged for the release.
    """
    from neyman.cli.memory_limit import at_most
    from neyman.display.report.report import page
    from neyman.publishing.release.verify.verification import verify as check

    with failing(as_json):
        if not receipt.exists():
            raise ValueError(f"receipt = {str(receipt)!r} is not there; give a receipt.json")
        if checkpoint is not None and ledger is None:
            raise ValueError("--checkpoint needs a ledger: add --ledger")
        with working("recomputing the guarantee"), at_most(memory):
            checks = check(
                receipt,
                {"report.html": page},
                key=key,
                ledger=ledger,
                checkpoint=checkpoint,
                memory=memory,
            )
        good = all(c.ok for c in checks)

        def show() -> None:
            for c in checks:
                mark = "[green]ok[/]    " if c.ok else "[bold red]FAILED[/]"
                out.print(f"{mark} ", end="")
                out.say(f"{c.name}: {c.detail}")

        results = [asdict(c) for c in checks]
        answer({"ok": good, "checks": results}, as_json, show)
    if not good:
        raise SystemExit(5)


@app.command(epilog="Example: neyman report release --out report.html")
def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a release, or its receipt.json.")],
    into: Annotated[
        Path | None,
        typer.Option("--out", help="File to write: report.html or registry.yaml if not given."),
    ] = None,
    registry: Annotated[
        bool,
        typer.Option(
            "--registry",
            help="Write a record for the Differential Privacy Deployments Registry instead.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Rebuild a release's report."""
    from neyman.display.report.deployment_record import registry_text
    from neyman.display.report.report import page
    from neyman.publishing.release.folder import Release

    with failing(as_json):
        path = into or Path("registry.yaml" if registry else "report.html")
        check_suffix(path, *((".yaml", ".yml") if registry else (".html", ".htm")))
        release = Release.load(folder.parent if folder.name == "receipt.json" else folder)
        text = registry_text(release.receipt) if registry else page(release, path)
        with writing(path):
            path.write_text(text, encoding="utf-8")
        answer({"report": str(path)}, as_json, lambda: out.say(str(path)))


@app.command(epilog="Example: neyman demo --out demo")
def demo(
    into: Annotated[Path, typer.Option("--out", help="Folder for all files of the demo.")] = Path(
        "demo"
    ),
    as_json: Json = False,
) -> None:
    """Run the whole workflow on 42,008,942 records, rebuilt from published county counts."""
    from neyman.cli.demo.demonstration import demonstrate, edited

    with failing(as_json, CHARGED):
        with progress() as tell:
            release, times = demonstrate(into, tell)
        note = f"{into / 'plan.toml'} is not the demo's own plan: it was run as it is"
        lines = [
            *((note,) if edited(into) else ()),
            "",
            f"{'making the person table':<34}{times['people']:6.1f} s",
            f"{'fetching it' if release.published_before else 'the release, start to end':<34}"
            f"{times['release']:6.1f} s",
            f"{'the plain aggregation alone':<34}{times['aggregation']:6.1f} s",
            "",
            f"neyman verify {into / 'release' / 'receipt.json'}",
            f"neyman ledger show {into / 'ledger.db'}",
        ]
        _say_release(release, into / "release", as_json, seconds=times, lines=lines)


app.command(epilog="Example: neyman audit plan.toml --pairs 5")(audit)
app.command(epilog="Example: neyman synthesize release --rows people.parquet")(synthesize)
app.command(epilog="Example: neyman explore plan.toml --no-browser")(explore)


def main() -> None:
    """Run the command line and exit with its code.

    The process ends immediately after its registered exit functions. Otherwise, threads that the
    engines are still starting would abort it in one case of fifty.
    """
    standard_streams()
    try:
        code = _done()
    except SystemExit as end:
        code = end.code
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # a failed print was already reported
            # same: stream.flush() -> None: Commands flush what they print, as Typer and Rich do.
            stream.flush()
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    os._exit(code if isinstance(code, int) else 1 if code else 0)


def _word(_context: object, value: object) -> object:
    return value


def _keep_words(command: Any) -> None:
    """Use the words of a shell completion as they are. To convert them, Typer loads pydantic."""
    parameters = command.get_params

    def unread(context: Any) -> list[Any]:
        options = parameters(context)
        for parameter in options:
            parameter.process_value = _word
        return options

    command.get_params = unread
    for part in getattr(command, "commands", {}).values():
        _keep_words(part)


def _done() -> int:
    """Run the command. Handle typer's own exits like all other exits."""
    as_json = "--json" in sys.argv
    command = typer.main.get_command(app)
    if "_NEYMAN_COMPLETE" in os.environ:
        _keep_words(command)
    try:
        code = command(prog_name="neyman", standalone_mode=False)
    except _Usage as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            return 2
        command = error.ctx.command_path if error.ctx else "neyman"
        message = error.format_message().removesuffix(".")
        failed(2, f"{message}; see {command} --help", as_json)
    except ImportError as error:
        failed(2, advice(error), as_json)
    except typer.Abort:
        code = _INTERRUPT_STATUS
    if code == _INTERRUPT_STATUS:
        failed(4, "before anything was done", as_json)
    return code or 0
