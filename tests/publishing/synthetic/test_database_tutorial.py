"""The tutorial from a database to synthetic rows does what it shows, on a server."""

import re
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
sys.path.insert(0, str(DOCS / "site"))
import pages  # noqa: E402 (docs/site/pages.py, which the site's build runs too)

PAGE = "howto/synthetic.md"
SECTION = "## From a database to synthetic rows\n"
URL = "postgresql://statistics@db.example/clinic?table=hospital.people"


@pytest.mark.filterwarnings("ignore:fetch_:DeprecationWarning")
def test_the_tutorial_from_a_database_does_what_it_shows(postgres, tmp_path):
    psycopg = pytest.importorskip("psycopg")
    pytest.importorskip("mbi")
    text = (DOCS / PAGE).read_text().split(SECTION)[1]
    text = re.sub(r"^<!-- not run: .* -->\n", "", text, flags=re.M)
    (statements,) = re.findall(r"^```sql\n(.*?)^```$", text, re.M | re.S)
    assert URL in text
    with psycopg.connect(postgres.url(), autocommit=True) as owner:
        owner.execute(statements)
        try:
            server = postgres.url(user="statistics", table="hospital.people")
            pages.run_blocks(PAGE, text.replace(URL, server), tmp_path)
        finally:
            owner.execute("DROP SCHEMA hospital CASCADE")
            owner.execute("DROP ROLE statistics")
    assert (tmp_path / "release" / "receipt.json").exists()
    assert (tmp_path / "rows.parquet").exists()
