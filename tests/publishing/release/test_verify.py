"""Verification: an honest release stands, and whatever is changed, added or left out is named."""

import copy
import hashlib
import json
import re
import shutil
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks import SIZE
from forging import rewrite
from neyman import Ledger, Release
from neyman.publishing import Differs, Receipt, create_key, intervals, sign, verify
from plans import release

pytestmark = pytest.mark.filterwarnings("ignore:fetch_:DeprecationWarning")

PLAN = """
schema = 2
name = "small"
dataset = "people@1"
table = "people"
[unit]
protects = "person"
neighboring = "replace-one"
[columns.race]
keys = ["NA", "black, or \\"other\\""]
[columns.old]
keys = [true, false]
[columns.age]
integer = true
[hierarchy.place]
levels = ["land", "state", "county"]
keys = [["M", "IL", "Adams"], ["M", "IL", "Cook"], ["M", "IN", "Adams"]]
[budget]
power = 0.25
level = 0.05
[[query]]
name = "total"
measure = "count"
at = ["land", "state", "county"]
public = { land = 300 }
share = "1/2"
[[query]]
name = "race"
measure = "count"
by = ["race", "old"]
share = "1/4"
[[query]]
name = "age"
measure = "mean"
column = "age"
clip = [0, 10]
at = ["state"]
share = "1/4"
"""


def page(product: Release) -> str:
    receipt = product.receipt
    return f"{receipt['dataset']} {receipt['guarantee']['power']} {sorted(product.tables)}"


PAGES = {"report.html": page}


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    folder = tmp_path_factory.mktemp("honest")
    (folder / "plan.toml").write_text(PLAN)
    people = pa.table({
        "state": ["IL", "IL", "IN"] * 100, "county": ["Adams", "Cook", "Adams"] * 100,
        "race": ["NA", 'black, or "other"'] * 150, "old": [True, False, False] * 100,
        "age": [i % 11 for i in range(300)],
    })  # fmt: skip
    Ledger(folder / "l.db").create(
        "people@1", protects="person", neighboring="replace-one", cap="2"
    )
    release(folder / "plan.toml", people, folder / "l.db", folder / "out", pages=PAGES)
    return folder / "out"


@pytest.fixture
def folder(honest, tmp_path):
    shutil.copytree(honest, tmp_path / "out")
    return tmp_path / "out"


def failed(folder, pages=PAGES):
    return [check.name for check in verify(folder, pages) if not check.ok]


def tell(folder, change):
    content = json.loads((folder / "receipt.json").read_text())
    change(content)
    (folder / "receipt.json").write_text(json.dumps(content))


def test_an_honest_release_stands_with_and_without_its_page(folder):
    for pages in (PAGES, None):
        checks = verify(folder / "receipt.json", pages)
        assert [check for check in checks if not check.ok] == []
        assert len(checks) >= 17
    (folder / "report.html").unlink()
    assert failed(folder) == []


def swap(path, value):
    """A change of the receipt at a path; `...` takes the field out."""
    *above, last = [int(step) if step.isdigit() else step for step in path.split(".")]

    def change(answer):
        for step in above:
            answer = answer[step]
        if value is ...:
            del answer[last]
        elif callable(value):
            answer[last] = value(answer[last])
        else:
            answer[last] = value

    return change


def upper_is_lower(bound):
    return {**bound, "upper": bound["lower"]}


@pytest.mark.parametrize(("change", "fails"), [
    (swap("plan_hash", "sha256:0"), {"plan hash", "plan"}),
    (swap("plan.budget.power", "0.2"), {"plan hash", "plan", "budget"}),
    (swap("plan.budget", {"zcdp": 0.1}), {"plan hash", "plan"}),
    (swap("plan.hierarchy.place.keys", "/etc/passwd"), {"plan hash", "plan"}),
    (swap("neighboring", "add-remove"), {"plan"}),
    (swap("dataset", "other@1"), {"plan"}),
    (swap("unit.rows", 2), {"plan"}),
    (swap("unit.rows", True), {"plan"}),
    (
        swap("mechanisms.1.mechanism.sigma_squared", "1"),
        {"mechanisms", "budget", "charge", "guarantee"},
    ),
    (swap("mechanisms", lambda m: m[:-1]), {"mechanisms"}),
    (swap("mechanisms", []), {"mechanisms"}),
    (swap("mechanisms.1.standard_error", 0.1), {"mechanisms"}),
    (swap("mechanisms.1.half_width_90", 1), {"mechanisms"}),
    (swap("mechanisms.1.public", True), {"mechanisms"}),
    (swap("mechanisms.1.count", True), {"mechanisms"}),
    (swap("mechanisms.1.zcdp", "1" * 5000), {"mechanisms"}),
    (swap("mechanisms.0.public", ...), {"mechanisms"}),
    (swap("guarantee.rho", {"lower": 0.1, "upper": 0.1}), {"guarantee"}),
    (swap("guarantee.mu", upper_is_lower), {"guarantee"}),
    (swap("guarantee.mu.safe", "upper"), {"guarantee"}),
    (swap("guarantee.mu.upper", "nan"), {"guarantee"}),
    (swap("guarantee.mu.lower", "inf"), {"guarantee"}),
    (swap("guarantee.epsilon.0.upper", lambda x: x * 0.999), {"guarantee"}),
    (swap("guarantee.epsilon.0.delta", 0.01), {"guarantee"}),
    (swap("guarantee.power.1.upper", 7), {"guarantee"}),
    (
        swap("guarantee.power", lambda p: [*p, {"level": 0.05, "lower": 0.05, "upper": 0.06}]),
        {"guarantee"},
    ),
    (swap("guarantee.curve", lambda c: c[:-1]), {"guarantee"}),
    (swap("guarantee.curve", ...), {"guarantee"}),
    (swap("guarantee.zcdp_route.variance_ratio", 1000.0), {"guarantee"}),
    (swap("guarantee.zcdp_route.rho", "1/1000"), {"guarantee"}),
    (swap("guarantee.zcdp_route.promise", "anything"), {"guarantee"}),
    (swap("guarantee.zcdp_route", None), {"guarantee"}),
    (swap("guarantee.scenarios", lambda s: s[:-1]), {"guarantee"}),
    (swap("guarantee.scenarios", {}), {"guarantee"}),
    (swap("guarantee.scenarios.0.attributes", ["age"]), {"guarantee"}),
    (swap("guarantee.scenarios.3.within", None), {"guarantee"}),
    (swap("guarantee.scenarios.3.rho.upper", lambda x: x * 0.99), {"guarantee"}),
    (swap("guarantee.scenarios.0.power.1.upper", lambda x: x * 0.99), {"guarantee"}),
    (swap("guarantee.scenarios.0.power.1.level", 0.01), {"guarantee"}),
    (swap("guarantee.scenarios.0.curve", lambda c: c[1:]), {"guarantee"}),
    (swap("guarantee.scenarios.0.more", 1), {"guarantee"}),
    (swap("guarantee.scenarios.0.posterior.1.upper", lambda x: x * 0.99), {"guarantee"}),
    (swap("guarantee.scenarios.0.posterior.1.epsilon", 2.5), {"guarantee"}),
    (swap("guarantee.scenarios.0.posterior.1.attacker", "true-record"), {"guarantee"}),
    (swap("guarantee.scenarios.0.posterior", ...), {"guarantee"}),
    (swap("guarantee.posterior.0.upper", lambda x: x * 0.99), {"guarantee"}),
    (swap("guarantee.posterior.0.upper", 1.5), {"guarantee"}),
    (swap("guarantee.posterior", []), {"guarantee"}),
    (swap("ledger.charged", "1/400"), {"charge"}),
    (swap("ledger.charged_delta", "1/400"), {"charge"}),
    (swap("ledger.account", "other@9"), {"charge"}),
    (swap("ledger.entry", "<b>1"), {"charge"}),
    (swap("ledger.currency", "euro"), {"charge"}),
    (swap("ledger.date", "<b>today"), {"charge"}),
    (swap("ledger.date", 20261123), {"charge"}),
    (swap("ledger.date", ""), {"charge"}),
    (swap("ledger.date", "2026-99-99"), {"charge"}),
    (swap("ledger.when", "2026-11-23"), {"charge"}),
    (swap("budget.power", "0.2"), {"plan"}),
    (swap("tables.0.sha256", "0"), {"tables/total.land.parquet"}),
    (swap("tables.0.path", "../receipt.json"), {"tables"}),
    (swap("tables.0.cells", 2), {"tables"}),
    (swap("tables", lambda t: [x for x in t if x["path"].endswith(".csv")]), {"tables"}),
    (swap("tables", lambda t: t[:2]), {"tables"}),
    (swap("tables", [{}]), {"tables"}),
    (swap("extra", "certified by everyone"), {"schema"}),
    (swap("versions.neyman", ...), {"schema"}),
    (swap("versions.neyman", "<b>"), {"schema"}),
    (swap("schema", "neyman-receipt/9"), {"schema"}),
    (swap("schema", ["neyman-receipt/1"]), {"schema"}),
])  # fmt: skip
def test_what_was_tampered_with_in_the_receipt_is_named(folder, change, fails):
    tell(folder, change)
    assert fails <= set(failed(folder))


def test_a_receipt_of_another_format_is_refused_and_left_alone(folder):
    tell(folder, swap("schema", "neyman-receipt/9"))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    (check,) = verify(folder)
    refused = (
        "'neyman-receipt/9', written by neyman .*reads 'neyman-receipt/1': nothing was changed"
    )
    assert re.search(refused, check.detail)
    with pytest.raises(ValueError, match=refused):
        Release.load(folder)
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def column(name, change):
    def changed(table):
        values = pa.array(change(table[name].to_pylist()), table.schema.field(name).type)
        return table.set_column(table.column_names.index(name), name, values)

    return changed


@pytest.mark.parametrize(("name", "change"), [
    ("total.state", lambda t: pa.table({"x": range(t.num_rows)})),
    ("total.state", lambda t: t.append_column("exact", t["value"])),
    ("total.state", lambda t: t.replace_schema_metadata({"exact": "1, 2"})),
    ("total.state", lambda t: t.slice(1)),
    ("total.state", column("state", lambda v: v[::-1])),
    ("total.state", column("standard_error", lambda v: [0.1] * len(v))),
    ("total.state", column("lower", lambda v: [x + 1 for x in v])),
    ("total.state", column("upper", lambda v: [x - 1 for x in v])),
    ("total.state", column("value", lambda v: [None] * len(v))),
    ("total.land", column("value", lambda v: [301])),
    ("race.all", column("race", lambda v: v[::-1])),
    ("age.state", column("value", lambda v: [11.0] * len(v))),
    ("age.state", column("standard_error", lambda v: [-1.0] * len(v))),
])  # fmt: skip
def test_a_table_of_another_form_fails_though_its_digest_fits(folder, name, change):
    rewrite(folder, name, change)
    assert f"tables/{name}.parquet" in failed(folder)


def test_a_csv_file_that_says_something_else_fails_though_its_digest_fits(folder):
    file = folder / "tables" / "race.all.csv"
    file.write_text(file.read_text().replace("true", "false", 1))
    tell(
        folder,
        lambda answer: next(
            t for t in answer["tables"] if t["path"].endswith("race.all.csv")
        ).update(sha256=hashlib.sha256(file.read_bytes()).hexdigest()),
    )
    assert failed(folder) == ["tables/race.all.csv"]


def test_files_that_are_not_listed_or_not_there_fail(folder):
    (folder / "tables" / "total.secret.csv").write_text("exact!")
    assert failed(folder) == ["files"]
    (folder / "tables" / "total.secret.csv").unlink()
    (folder / "tables" / "race.all.csv").unlink()
    assert failed(folder) == ["tables/race.all.csv"]


def test_an_edited_page_fails(folder):
    (folder / "report.html").write_text("nothing at all can be learned")
    assert failed(folder) == ["report.html"]
    assert failed(folder, None) == []


@pytest.mark.parametrize("text", [
    "", "[]", "1", "null", '"x"', "{}", "[" * 20_000, "9" * 6000, "\xff", "{" * 9,
    '{"schema": "neyman-receipt/1"}', '{"schema": "neyman-receipt/1", "schema": 1}',
    '{"schema": NaN}', '{"schema": "neyman-receipt/1", "tables": [{}], "mechanisms": 1}',
    '{"schema": "neyman-receipt/1", "plan": ' + '{"a":' * 500 + "1" + "}" * 501,
])  # fmt: skip
def test_what_is_no_receipt_is_refused_and_nothing_raises(tmp_path, text):
    (tmp_path / "receipt.json").write_text(text, encoding="latin-1")
    assert not all(check.ok for check in verify(tmp_path, PAGES))
    assert [check.ok for check in verify(tmp_path / "nowhere.json", PAGES)] == [False]


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
INNER = PLAIN | st.lists(PLAIN, max_size=2) | st.dictionaries(st.text(), PLAIN, max_size=2)
JUNK = INNER | st.lists(INNER, max_size=3) | st.dictionaries(st.text(), INNER, max_size=3)


@st.composite
def broken(draw, answer):
    """The receipt with junk at a place that is drawn step by step."""
    answer = copy.deepcopy(answer)
    part, above, at = answer, answer, ""
    for _ in range(draw(st.integers(1, 5))):
        if not isinstance(part, dict | list) or not part:
            break
        keys = [k for k in part if k != "schema"] if isinstance(part, dict) else range(len(part))
        above, at = part, draw(st.sampled_from(list(keys)))
        part = above[at]  # pyright: ignore[reportArgumentType, reportCallIssue] (a JSON value)
    above[at] = draw(JUNK.filter(lambda junk: junk != part))
    return answer


def test_no_json_makes_it_raise(honest, tmp_path_factory, attempts):
    content = json.loads((honest / "receipt.json").read_text())
    folder = tmp_path_factory.mktemp("junk")
    shutil.copytree(honest, folder, dirs_exist_ok=True)

    @settings(max_examples=16 * SIZE)
    @given(broken(content))
    def check(receipt):
        (folder / "receipt.json").write_text(json.dumps(receipt))
        verify(folder, PAGES)
        attempts(1)

    check()


def said(folder, name, **given):
    """What one check of a release found, and whether it holds."""
    (check,) = (check for check in verify(folder, PAGES, **given) if check.name == name)
    return check.ok, check.detail


def test_an_unsigned_receipt_says_what_that_leaves_open(folder):
    ok, detail = said(folder, "signature")
    assert ok
    assert "unsigned" in detail
    assert "a forgery that is consistent would pass" in detail
    create_key(folder.parent / "custodian")
    ok, detail = said(folder, "signature", key=folder.parent / "custodian.pub")
    assert not ok
    assert "has not signed this release" in detail


def test_a_signed_receipt_is_its_signers_or_fails(folder):
    for name in ("custodian", "stranger"):
        create_key(folder.parent / name)
    receipt = (folder / "receipt.json").read_bytes()
    (folder / "receipt.sig").write_bytes(sign(receipt, folder.parent / "custodian"))
    public = folder.parent / "custodian.pub"
    assert [check for check in verify(folder, PAGES, key=public) if not check.ok] == []
    assert said(folder, "signature", key=public)[1].startswith(f"signed by {public}")
    assert "compare it with the custodian's" in said(folder, "signature")[1]
    ok, detail = said(folder, "signature", key=folder.parent / "stranger.pub")
    assert not ok
    assert "someone else has signed it" in detail
    tell(folder, swap("versions.python", "3.99"))
    ok, detail = said(folder, "signature", key=public)
    assert not ok
    assert "not of this receipt" in detail
    (folder / "receipt.sig").write_bytes(b"{}")
    assert said(folder, "signature")[0] is False


def test_the_ledger_vouches_for_what_it_published_and_nothing_else(honest, folder, tmp_path):
    book = honest.parent / "l.db"
    selection = tmp_path / "kept"
    with Ledger(book) as ledger:
        ledger.keep_checkpoint(selection)
    checks = verify(folder, PAGES, ledger=book, checkpoint=selection)
    assert [check for check in checks if not check.ok] == []
    assert said(folder, "published", ledger=book) == (
        True,
        f"entry 1 has published these files, and was charged {Ledger(book).entry(1).charge}",
    )
    with Ledger(tmp_path / "other.db") as empty:
        empty.create("people@1", protects="person", neighboring="replace-one", cap="2")
    other = tmp_path / "other.db"
    ok, detail = said(folder, "ledger", ledger=other, checkpoint=selection)
    assert not ok
    assert "another ledger was put in its place" in detail
    ok, detail = said(folder, "ledger", ledger=tmp_path / "nowhere.db")
    assert not ok
    assert "there is no ledger at" in detail
    ok, detail = said(folder, "published", ledger=other)
    assert not ok
    assert "has published nothing of plan" in detail
    tell(folder, swap("versions.python", "3.99"))
    ok, detail = said(folder, "published", ledger=book)
    assert not ok
    assert "'receipt.json' is not the file that entry 1 published" in detail
    tell(folder, swap("ledger.date", "2020-02-02"))
    ok, detail = said(folder, "published", ledger=book)
    assert not ok
    assert "ledger.date is '2020-02-02', and is recomputed as" in detail
    tell(folder, swap("ledger.entry", "2"))
    assert said(folder, "published", ledger=book)[0] is False


def test_the_date_of_a_receipt_is_the_day_of_its_charge(honest, folder):
    """UTC, as the ledger recorded it; a receipt without it is refused."""
    receipt = json.loads((folder / "receipt.json").read_text())
    created = Ledger(honest.parent / "l.db").entry(1).created
    assert created.startswith(receipt["ledger"]["date"] + "T")
    tell(folder, swap("ledger.date", ...))
    assert "charge" in failed(folder)
    with pytest.raises(ValueError, match=r"field 'ledger'.*has no field 'date'"):
        Receipt.read(json.loads((folder / "receipt.json").read_text()))


def test_a_charge_of_a_looser_proof_still_stands_and_a_smaller_charge_does_not(folder):
    charged = Fraction(json.loads((folder / "receipt.json").read_text())["ledger"]["charged"])
    tell(folder, swap("ledger.charged", str(charged * Fraction(11, 10))))
    by_name = {check.name: check for check in verify(folder)}
    assert by_name["charge"].ok
    assert "a looser proof than today's" in by_name["charge"].detail
    tell(folder, swap("ledger.charged", str(charged * Fraction(999_999_999, 10**9))))
    assert "charge" in failed(folder)


@pytest.mark.parametrize("version", ["<b>", "", "1" * 61, "1\n", 1, None])
def test_a_version_that_is_no_version_is_refused_by_name(folder, version):
    assert said(folder, "schema")[0]
    tell(folder, swap("versions.python", version))
    ok, detail = said(folder, "schema")
    assert not ok
    assert re.search(r"versions.python is .*, which is not a version", detail)


# Stored bounds are compared with computed ones on the safe side


@pytest.mark.parametrize(("ours", "theirs", "proven"), [
    ((0.2, 0.2001), (0.2, 0.2001), True),
    ((0.2, 0.2001), (0.1, 0.9), True),  # a wider enclosure claims less
    ((0.2, 0.2001), (0.20002, 0.20008), False),  # within ours: neither proven nor refuted
    ((0.2, 0.2001), (0.1999, 0.20005), False),
    ((0.2, 0.2001), (0.1, 0.19999), None),  # below what we prove the number to be at least
    ((0.2, 0.2001), (0.20011, 0.3), None),  # above what we prove it to be at most
    ((0.2, 0.2001), (0.2, 0.1), None),
    ((0.1, 0.2), (0.1, 0.19), None),  # within ours, by more than versions differ
])  # fmt: skip
def test_bounds_pass_if_they_meet_ours_and_it_is_known_if_ours_prove_them(ours, theirs, proven):
    parts = [
        dict(zip(("level", "lower", "upper"), (0.05, *x), strict=True)) for x in (ours, theirs)
    ]
    if proven is not None:
        assert list(intervals("guarantee.power[0]", *parts)) == [proven]
        return
    with pytest.raises(Differs, match=r"guarantee\.power\[0\] is stated in"):
        list(intervals("guarantee.power[0]", *parts))
