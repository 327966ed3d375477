"""The form of CSV files that a plan declares: delimiter, encoding, and compression."""

import csv
import gzip
import io
import itertools
import typing
from fractions import Fraction

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_source import LINES, SECRET, a_plan
from test_source import counts as counted

from neyman import Ledger, check_data
from neyman.ledger import ChargedError
from neyman.publishing import DataError, Plan, PlanError, Source, SourcePart, open_table
from neyman.publishing.engines import csv_reader as lines
from plain_engine import aggregate
from plans import release
from random_laws import examples

ENCODINGS = typing.get_args(SourcePart.model_fields["encoding"].annotation)
DELIMITERS = typing.get_args(SourcePart.model_fields["delimiter"].annotation)


def formed(keys=("a", "b"), **source) -> Plan:
    return Plan.from_dict({**a_plan(keys).canonical(), "source": source})


def counts(plan, path) -> list[int]:
    """The table of a path by the way of a run: the form first, then the rows."""
    source = Source.of(plan, str(path), "duckdb", None, None)
    source.rehearse(plan)
    return aggregate(plan, source.open(("race",)))["q", "all", "count"].tolist()


def rows(path, **source):
    return lines.read_csv(str(path), source=SourcePart(**source)).to_pylist()


def released(tmp_path, plan, path) -> Fraction:
    """What a run with a fresh ledger spends, whether it ends well or not."""
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create("d@1", protects="person", neighboring="replace-one", cap=1)
    try:
        release(plan, path, ledger, tmp_path / "out")
    except DataError:
        assert not (tmp_path / "out").exists()
    return sum((entry.charge for entry in ledger.entries("d@1")), Fraction(0))


# The plan


def test_a_plan_without_a_source_has_the_hash_of_the_default_source():
    assert formed().hash == a_plan().hash
    assert formed(delimiter=",", encoding="utf-8", compression="none").hash == a_plan().hash
    assert "source" not in a_plan().canonical()


def test_a_plan_with_a_source_is_another_plan_and_is_read_back_as_it_is():
    hashes = {a_plan().hash}
    for more in ({"delimiter": ";"}, {"encoding": "latin-1"}, {"compression": "gzip"}):
        plan = formed(**more)
        assert plan.source == SourcePart(**more)
        assert Plan.from_dict(plan.canonical()) == plan
        assert Plan.from_dict(plan.canonical()).hash == plan.hash
        hashes.add(plan.hash)
    assert len(hashes) == 4


@pytest.mark.parametrize(("source", "said"), [
    ({"delimiter": ":"}, "source.delimiter = ':': must be ',', ';', '\\t' (a tab) or '|'"),
    ({"delimiter": ";;"}, "source.delimiter = ';;'"),
    ({"delimiter": '"'}, "source.delimiter"),
    ({"encoding": "utf-16"}, "source.encoding = 'utf-16'"),
    ({"encoding": "latin1"}, "did you mean 'latin-1'"),
    ({"compression": "zip"}, "did you mean 'gzip'"),
    ({"quote": "'"}, "there is no field 'quote'; there are 'delimiter'"),
    ("latin-1", "source = 'latin-1': must be a [source] section"),
])  # fmt: skip
def test_a_source_that_cannot_be_read_line_by_line_is_refused_with_what_can(source, said):
    with pytest.raises(PlanError) as caught:
        Plan.from_dict({**a_plan().canonical(), "source": source})
    assert said in str(caught.value)


# Encodings


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_encoding_has_line_ends_delimiters_and_quotes_as_single_bytes_and_nowhere_else(encoding):
    assert bytes(range(128)).decode(encoding) == "".join(map(chr, range(128)))
    for code in range(128, 0x110000 if encoding == "utf-8" else 0x10000):
        try:
            data = chr(code).encode(encoding)
        except UnicodeEncodeError:
            continue
        assert min(data) >= 128
        assert encoding == "utf-8" or len(data) == 1


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_value_that_cannot_be_decoded_is_missing_and_no_other_value_changes(tmp_path, encoding):
    path = tmp_path / "people.csv"
    values = [bytes([byte]) for byte in range(128, 256)]
    path.write_bytes(b"race\na\n" + b"\n".join(values) + b"\nb\n")
    results = [row["race"] for row in rows(path, encoding=encoding)]
    right = []
    for value in values:
        try:
            right.append(value.decode(encoding))
        except UnicodeDecodeError:
            right.append(None)
    assert results == ["a", *right, "b"]


def test_keys_are_compared_with_the_text_and_not_with_the_bytes(tmp_path):
    path = tmp_path / "people.csv"
    path.write_bytes("id,race\n1,é\n2,€\n3,Ã©\n".encode("windows-1252"))
    keys = ("é", "€", "Ã©")
    assert counts(formed(keys, encoding="windows-1252"), path) == [1, 1, 1]
    # In Latin-1 the byte of the euro sign is another character; in UTF-8 "Ã©" is read as "é".
    assert counts(formed(keys, encoding="latin-1"), path) == [1, 0, 1]
    assert counts(a_plan(keys), path) == [1, 0, 0]


def test_the_names_of_columns_are_decoded_too(tmp_path):
    path = tmp_path / "people.csv"
    path.write_bytes("größe;race\n1;a\n".encode("iso-8859-15"))
    assert rows(path, delimiter=";", encoding="iso-8859-15") == [{"größe": "1", "race": "a"}]
    with pytest.raises(DataError, match="must be UTF-8"):
        rows(path, delimiter=";")


# Delimiters


@settings(max_examples=examples(200))
@given(st.lists(LINES, max_size=8), st.sampled_from(DELIMITERS), st.integers(1, 3))
def test_each_line_is_read_alone_whatever_the_delimiter(tmp_path_factory, some, mark, width):
    folder = tmp_path_factory.mktemp("data")
    header = b",".join([b"x", b"y", b"z"][:width])
    content = b"\n".join([header, *some])
    table = bytes.maketrans(b"," + mark.encode(), mark.encode() + b",")
    (folder / "a.csv").write_bytes(content)
    (folder / "b.csv").write_bytes(content.translate(table))
    swapped = str.maketrans("," + mark, mark + ",")
    right = [
        {name: value and value.translate(swapped) for name, value in row.items()}
        for row in rows(folder / "a.csv")
    ]
    assert rows(folder / "b.csv", delimiter=mark) == right


QUOTED = ['"a",1', '"a""b",1', '"",1', '"a,b",1', '"a"b,1', 'a"b",1', '"ab"c,1', '"a,1', '1,"']


@pytest.mark.parametrize("line", QUOTED)
def test_a_line_with_quotes_is_a_row_where_it_is_one_by_itself(line):
    alone = lines.split(line.encode(), ",")
    block = lines.parsed(f"{line}\nx,y\n".encode(), 2, [0, 1], ",")
    read = [block.values(i).to_pylist() for i in (0, 1)]
    right = [row for row in (alone, [b"x", b"y"]) if row is not None]
    assert sorted(zip(*read, strict=True)) == sorted(map(tuple, right))


@pytest.mark.parametrize("delimiter", DELIMITERS)
def test_what_a_csv_writer_writes_with_a_delimiter_is_read_back(tmp_path, delimiter):
    values = list(itertools.product([",", ";", "\t", "|", '"', "", "a", f"{delimiter}x"], repeat=2))
    path = tmp_path / "people.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows([("x", "y"), *values])
    result = {tuple(v or "" for v in row.values()) for row in rows(path, delimiter=delimiter)}
    assert result == set(values)


# Lines


@pytest.fixture
def people(tmp_path):
    def write(content: bytes) -> str:
        path = tmp_path / "people.csv"
        path.write_bytes(content)
        return str(path)

    return write


@settings(max_examples=examples(300))
@given(st.lists(LINES, max_size=12), st.sampled_from([b"\n", b"\r\n"]), st.integers(1, 3))
def test_a_file_has_the_rows_of_its_lines_each_read_alone(tmp_path_factory, some, end, width):
    folder = tmp_path_factory.mktemp("data")
    header = b",".join([b"x", b"y", b"z"][:width]) + b"\n"

    def read(content: bytes) -> list[dict]:
        (folder / "f.csv").write_bytes(header + content)
        return lines.read_csv(str(folder / "f.csv")).to_pylist()

    alone = [read(line + end) for line in some]
    assert all(len(rows) <= 1 for rows in alone)
    together = read(b"".join(line + end for line in some))
    key = lambda row: str(sorted(row.items()))  # noqa: E731 - one use
    assert sorted(together, key=key) == sorted(itertools.chain(*alone), key=key)


PLAIN = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=4)
LIKELY = st.sampled_from(['"', '""', ",", 'a"b', "a,b", '","', " ", "é"])


@settings(max_examples=examples(200))
@given(st.lists(st.lists(PLAIN | LIKELY, min_size=3, max_size=3)), st.booleans())
def test_what_a_csv_writer_writes_is_read_back(tmp_path_factory, rows, every):
    path = tmp_path_factory.mktemp("data") / "f.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL if every else csv.QUOTE_MINIMAL)
        writer.writerow(["x", "y", "z"])
        writer.writerows(rows)
    results = [tuple(row.values()) for row in lines.read_csv(str(path)).to_pylist()]
    right = [tuple(value or None for value in row) for row in rows]
    key = lambda row: [value or "" for value in row]  # noqa: E731 - one use
    assert sorted(results, key=key) == sorted(right, key=key)


@pytest.mark.parametrize("long", [b"x" * 200, b'"' + b"x" * 200, b"x" * 95 + b"\xff" * 40])
def test_where_blocks_end_changes_nothing_and_too_long_a_line_is_dropped(people, monkeypatch, long):
    content = b'id,race\n1,a\n"2",b\n' + long + b',a\n3,"a"\n' + long + b",a\n4,a"
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 100)
    for size in (1, 2, 3, 7, 50, 99, 100, 101, 102, 1000):
        monkeypatch.setattr(lines, "_CHUNK_BYTES", size)
        assert counted(a_plan(), people(content)) == [3, 1], size


def test_only_the_first_line_of_a_csv_file_is_read_for_its_schema(people, monkeypatch):
    monkeypatch.setattr(lines, "blocks", lambda file: pytest.fail("rows were read"))
    assert open_table(people(b"id,race\n1,a\n"), rows=False).columns == ("id", "race")


# Compression

CONTENT = b"id,race\n" + b"".join(b"%d,%s\n" % (i, b"ab"[i % 2 : i % 2 + 1]) for i in range(500))


def test_a_compressed_file_is_counted_as_the_file_itself(tmp_path):
    plan = formed(compression="gzip")
    packed = gzip.compress(CONTENT)
    half = len(CONTENT) // 2
    several = gzip.compress(CONTENT[:half]) + gzip.compress(b"") + gzip.compress(CONTENT[half:])
    for name, content in (("a.csv.gz", packed), ("b.CSV.GZ", several), ("c.csv", packed)):
        path = tmp_path / name
        path.write_bytes(content)
        assert counts(plan, path) == [250, 250]
        check = check_data(plan, path)
        assert check.lines is not None
        assert (check.rows, check.lines.dropped) == (500, 0)
    assert released(tmp_path, plan, path) == Fraction(1, 2)
    assert (tmp_path / "out" / "receipt.json").exists()


def test_a_plan_without_a_source_reads_the_form_from_the_name(tmp_path):
    tabs = CONTENT.replace(b",", b"\t")
    files = {"a.tsv": tabs, "b.TSV.GZ": gzip.compress(tabs), "c.csv.gz": gzip.compress(CONTENT)}
    for name, content in files.items():
        path = tmp_path / name
        path.write_bytes(content)
        assert counts(a_plan(), path) == [250, 250]
        check = check_data(a_plan(), path)
        assert check.lines is not None
        assert (check.rows, check.lines.dropped) == (500, 0)
        with pytest.raises(DataError, match=r"gzip|no column"):
            counts(formed(delimiter=";"), path)
    assert counts(a_plan(), str(tmp_path / "*")) == [750, 750]
    cut = tmp_path / "d.csv.gz"
    cut.write_bytes(gzip.compress(CONTENT)[:-1])
    assert released(tmp_path, a_plan(), cut) == 0


def test_a_file_that_is_cut_off_anywhere_is_refused_before_anything_is_spent(tmp_path):
    plan, path = formed(compression="gzip"), tmp_path / "people.csv.gz"
    packed = gzip.compress(CONTENT)
    for length in [*range(40), *range(40, len(packed), 97), *range(len(packed) - 9, len(packed))]:
        path.write_bytes(packed[:length])
        with pytest.raises(DataError, match=r"gzip|no header") as caught:
            lines.read_csv(str(path), rows=False, source=plan.source)
        assert "250" not in str(caught.value)
    path.write_bytes(packed[:-1])
    assert released(tmp_path, plan, path) == 0


@settings(max_examples=examples(600))
@given(st.data())
def test_a_damaged_file_that_is_not_refused_at_first_can_be_read_to_its_end(tmp_path_factory, data):
    packed = bytearray(gzip.compress(CONTENT, mtime=0))
    place = data.draw(st.integers(0, len(packed) - 1) | st.integers(0, 20))
    packed[place] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.mktemp("data") / "people.csv.gz"
    path.write_bytes(bytes(packed) + data.draw(st.sampled_from([b"", b"\x00" * 3, b"x"])))
    form = SourcePart(compression="gzip")
    try:
        lines.read_csv(str(path), rows=False, source=form)
    except DataError:
        return
    assert lines.read_csv(str(path), source=form).num_rows == 500


@settings(max_examples=examples(100))
@given(st.binary(max_size=2000))
def test_no_content_of_a_whole_compressed_file_makes_a_run_fail(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("data") / "people.csv.gz"
    path.write_bytes(gzip.compress(b"id,race\n1,a\n" + content))
    form = {"compression": "gzip", "encoding": "windows-1252"}
    lines.read_csv(str(path), rows=False, source=SourcePart(**form))
    assert rows(path, **form)[0] == {"id": "1", "race": "a"}


def test_a_file_damaged_after_the_charge_fails_without_a_word_on_its_content(tmp_path, monkeypatch):
    plan, path = formed(compression="gzip"), tmp_path / "people.csv.gz"
    packed = gzip.compress(f"id,race\n1,{SECRET}\n".encode() + CONTENT[8:])
    path.write_bytes(packed)
    begin = Ledger.begin

    def damaging(self, entry):
        begin(self, entry)
        path.write_bytes(packed[:-9])

    monkeypatch.setattr(Ledger, "begin", damaging)
    with pytest.raises(ChargedError) as caught:
        released(tmp_path, plan, path)
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None


def test_memory_does_not_grow_with_what_a_block_of_a_compressed_file_unpacks_to(monkeypatch):
    sizes = []
    file = gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(b"x" * 10_000_000)))
    read = file.read
    monkeypatch.setattr(lines, "_CHUNK_BYTES", 1000)
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 5000)
    monkeypatch.setattr(file, "read", lambda n: sizes.append(n) or read(n))
    texts = list(lines.blocks(file))
    assert max(map(len, texts)) <= 7000
    assert set(sizes) == {1000}


def test_a_file_that_is_not_compressed_as_declared_is_refused_by_its_form(tmp_path):
    path = tmp_path / "people.csv"
    path.write_bytes(CONTENT)
    with pytest.raises(DataError, match="not a whole gzip file"):
        counts(formed(compression="gzip"), path)
    path.write_bytes(gzip.compress(CONTENT))
    for encoding in ("utf-8", "latin-1"):
        with pytest.raises(DataError, match="declare compression = 'gzip'"):
            counts(formed(encoding=encoding), path)


def test_a_form_that_is_declared_for_other_data_than_csv_is_refused(tmp_path):
    plan, table = formed(delimiter=";"), pa.table({"race": ["a"]})
    pq.write_table(table, tmp_path / "people.parquet")
    for data in (table, table.to_pandas(), tmp_path / "people.parquet", tmp_path):
        with pytest.raises(DataError, match="declares the form of a CSV file"):
            check_data(plan, data)
    assert released(tmp_path, plan, table) == 0
