"""``neyman synthesize``: rows from the tables of a release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neyman.cli.terminal import Json, answer, check_suffix, columns, failing, out, working, writing

if TYPE_CHECKING:
    from neyman.publishing.synthetic.rows_from_tables import SyntheticRows


def synthesize(
    folder: Annotated[Path, typer.Argument(help="The folder of a release.")],
    rows: Annotated[Path, typer.Option("--rows", help="The Parquet file to write.")],
    people: Annotated[
        int | None,
        typer.Option(min=1, help="Number of rows. If not given, the tables' own estimate."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make synthetic rows from a release's tables, without private data and without a charge."""
    from neyman.publishing.release.folder import Release
    from neyman.publishing.synthetic.rows_from_tables import synthesize as rows_of

    with failing(as_json):
        check_suffix(rows, ".parquet")
        if rows.exists():
            raise ValueError(f"--rows {str(rows)!r} already exists; name a new file")
        release = Release.load(folder)
        with working("fitting the rows to the tables"):
            report = rows_of(release, people)
        import pyarrow.parquet

        with writing(rows):
            pyarrow.parquet.write_table(report.rows, rows)
        content = {"path": str(rows), **report.to_dict()}
        answer(content, as_json, lambda: _show(report, rows))


def _show(report: SyntheticRows, path: Path) -> None:
    """Print what the rows keep, and what they do not."""
    from neyman.publishing.synthetic.rows_from_tables import STATEMENT

    out.say(f"{path}: {report.rows.num_rows} synthetic rows")
    table = columns("table", "columns", "total variation", "expected from noise")
    for one in report.tables:
        table.add_row(
            one.table, ", ".join(one.columns), f"{one.total_variation:.4f}", f"{one.from_noise:.4f}"
        )
    out.print(table)
    out.say(
        "Total variation: half the sum over the cells of the distance between the share of the "
        "rows and the share in the released table. The last column is the distance that the noise "
        "of the table alone would cause."
    )
    for name, reason in report.unused.items():
        out.say(f"Not preserved: {name}: {reason}")
    if report.independent:
        pairs = ", ".join(f"{a} x {b}" for a, b in report.independent)
        out.say(
            f"Not preserved: relations that no table shows: {pairs}. The rows relate these columns "
            "only through columns that tables relate to both."
        )
    out.say(STATEMENT)
