"""Where public keys may come from: the plan's folder, and no file that is data of the run."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from neyman import Ledger
from neyman.publishing import Plan, PlanError, key_lists, key_warnings
from plans import release

PLAN = """
schema = 2
name = "leak"
dataset = "people@1"
table = "people"
[unit]
protects = "person"
neighboring = "replace-one"
[hierarchy.place]
levels = ["town", "street"]
keys = "KEYS"
[budget]
zcdp = "0.001"
[[query]]
name = "q"
measure = "count"
at = ["street"]
share = 1
"""
ROWS = "town,street\nA,x\nA,y\nB,x\n"


@pytest.fixture
def home(tmp_path):
    """A folder of a plan, and a private one beside it."""
    for name in ("plan", "plan/lists", "private"):
        (tmp_path / name).mkdir()
    (tmp_path / "plan" / "places.csv").write_text(ROWS)
    (tmp_path / "private" / "people.csv").write_text(ROWS)
    Ledger(tmp_path / "ledger.db").create(
        "people@1", protects="person", neighboring="replace-one", cap="1"
    )
    return tmp_path


def written(home, keys):
    path = home / "plan" / "plan.toml"
    path.write_text(PLAN.replace("KEYS", str(keys)))
    return path


def refused(home, keys, said):
    with pytest.raises(PlanError, match=said) as caught:
        Plan.load(written(home, keys))
    assert "\n" not in str(caught.value)


def test_keys_come_from_the_folder_of_the_plan_or_below(home, monkeypatch):
    """By any path that stays in it, and whatever folder the command is started in."""
    shutil.copy(home / "plan" / "places.csv", home / "plan" / "lists" / "more.csv")
    (home / "plan" / "link.csv").symlink_to("lists/more.csv")
    ways = ["places.csv", "lists/more.csv", "lists/../places.csv", "link.csv"]
    for keys in [*ways, home / "plan" / "places.csv"]:
        assert Plan.load(written(home, keys)).hierarchy
    monkeypatch.chdir(home / "plan")
    assert Plan.load("plan.toml").hierarchy


def test_keys_from_elsewhere_are_refused_also_behind_links(home):
    """A plan of someone else's can name no file of the machine but those beside it."""
    outside = home / "private" / "people.csv"
    refused(home, "../private/people.csv", "is not in the plan's folder or below")
    refused(home, outside, "is not in the plan's folder or below")
    (home / "plan" / "link.csv").symlink_to(outside)
    refused(home, "link.csv", "is not in the plan's folder or below")
    (home / "plan" / "way").symlink_to(home / "private", target_is_directory=True)
    refused(home, "way/people.csv", "is not in the plan's folder or below")
    (home / "plan_b.csv").write_text(ROWS)  # the same beginning, another folder
    refused(home, "../plan_b.csv", "is not in the plan's folder or below")


def test_a_pipe_a_socket_and_a_folder_are_refused_at_once(home):
    """In its own process: a pipe without a writer would be waited for."""
    os.mkfifo(home / "plan" / "pipe.csv")
    (home / "plan" / "folder.csv").mkdir()
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(str(home / "plan" / "socket.csv"))
        for keys in ("pipe.csv", "socket.csv", "folder.csv"):
            result = subprocess.run(
                [sys.executable, "-m", "neyman", "plan", "check", written(home, keys)],
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
            assert (result.returncode, result.stdout) == (2, ""), result.stderr
            assert f"{keys!r} is not a regular file" in result.stderr


def test_a_device_is_refused_at_once():
    """/dev/zero never ends."""
    data = {
        "schema": 2,
        "name": "x",
        "dataset": "d@1",
        "table": "t",
        "unit": {"protects": "person", "neighboring": "replace-one"},
        "hierarchy": {"place": {"levels": ["town"], "keys": "zero"}},
        "budget": {"zcdp": 1},
        "query": [{"name": "q", "measure": "count", "at": ["town"], "share": 1}],
    }
    code = (
        "from neyman.publishing.plan import Plan, PlanError\n"
        f"try: Plan.from_dict({data!r}, folder='/dev')\n"
        "except PlanError as error: print(error)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert "'zero' is not a regular file" in result.stdout, result.stderr


def test_a_huge_file_is_refused_before_it_is_read(home):
    """By its size, of which none is on the disk here."""
    with (home / "plan" / "huge.csv").open("w") as file:
        os.truncate(file.fileno(), 2**40)
    refused(home, "huge.csv", "is larger than 256 MiB")


def test_what_cannot_be_a_path_is_refused(home):
    """A null character, a loop of links, a file that is not there."""
    (home / "plan" / "loop.csv").symlink_to("loop.csv")
    for keys in (r"a\u0000b", "loop.csv", "nowhere.csv", "x" * 5000):
        refused(home, keys, "cannot read")


def test_a_key_file_that_is_data_of_the_run_is_refused_before_the_charge(home):
    """Under every name of the file: a path, a link, a pattern, a folder, a list, another table."""
    private = home / "private" / "people.csv"
    os.link(private, home / "plan" / "places2.csv")
    plan = written(home, "places2.csv")
    pq.write_table(pa.table({"town": ["A"], "street": ["x"]}), home / "good.parquet")
    (home / "link.csv").symlink_to(private)
    (home / "way").symlink_to(home / "private")
    (home / "private" / "round").symlink_to(home / "private")
    (home / "deep" / "er").mkdir(parents=True)
    os.link(private, home / "deep" / "er" / "people.csv")
    good = home / "good.parquet"
    sources = [
        private,
        str(private),
        home / "link.csv",
        home / "private",
        home / "way",
        home / "deep",
        str(home / "priv*" / "*.csv"),
        str(home / "pri*"),
        str(home / "**" / "people.csv"),
        [good, private],
        (str(private),),
        {"people": private},
        {"people": good, "other": private},
        {"people": [good, private]},
        pa.dataset.dataset(str(private), format="csv"),
    ]
    for data in sources:
        with pytest.raises(PlanError, match=r"keys = 'places2\.csv' is also data of this run"):
            release(plan, data, home / "ledger.db", home / "out")
    assert Ledger(home / "ledger.db").account("people@1").spent == 0
    assert not (home / "out").exists()


def test_a_key_file_beside_the_data_is_public_and_is_used(home):
    """Another file with the same content is not data of the run."""
    private = home / "private" / "people.csv"
    product = release(written(home, "places.csv"), private, home / "ledger.db", home / "out")
    assert list(product.tables) == ["q.street"]


def warned(**changes):
    """The warnings about a plan with one hierarchy."""
    data = {
        "schema": 2,
        "name": "x",
        "dataset": "d@1",
        "table": "t",
        "unit": {"protects": "person", "neighboring": "replace-one"},
        "columns": {"sex": {"keys": ["f", "m"]}},
        "hierarchy": {"place": {"levels": ["town"], "keys": [[f"t{i}"] for i in range(50)]}},
        "budget": {"zcdp": 1},
        "query": [{"name": "q", "measure": "count", "at": ["town"], "share": 1}],
    }
    level = changes.pop("level", "town")
    data["hierarchy"]["place"]["levels"] = data["query"][0]["at"] = [level]
    return tuple(key_warnings(Plan.from_dict(data | changes)))


def test_a_level_with_nearly_as_many_places_as_rows_is_warned_about():
    """Places of which each has a row or two were made from the rows."""
    assert warned() == warned(most_rows=1000) == warned(most_rows=101) == ()
    (said,) = warned(most_rows=100)
    assert said.startswith("The level 'town' has 50 keys, and the plan declares 100 rows.")
    assert "column 'sex'" in warned(most_rows=4)[-1]


@pytest.mark.parametrize(
    "name",
    [
        "name",
        "Name",
        "last_name",
        "FullName",
        "ssn",
        "SSN",
        "id",
        "person_id",
        "patient id",
        "email",
        "e_mail",
        "phone",
        "phone_number",
        "Telephone",
        "address",
        "date_of_birth",
        "dob",
        "passport_no",
        "user_name",
        "uuid",
        "mrn",
        "record_id",
        "address2",
    ],
)
def test_a_level_that_is_named_like_an_identifier_is_warned_about(name):
    """Its keys are published."""
    (said,) = warned(level=name)
    assert said.startswith(f"The level {name!r} is named like an identifier of a person")


@pytest.mark.parametrize("name", ["county", "county_name", "state_id", "region", "tract", "valid"])
def test_names_of_places_are_not_warned_about(name):
    """A county has a name and a number, too."""
    assert warned(level=name) == ()


def test_a_key_file_is_listed_with_its_numbers_of_places(home):
    """So that the reader of a check sees what will be published."""
    (keys,) = key_lists(Plan.load(written(home, "places.csv")))
    assert (keys.file, keys.places) == ("places.csv", (("town", 2), ("street", 3)))
    assert keys.text().startswith("Key file places.csv: 3 places (town 2, street 3).")
    assert Path(home / "plan" / keys.file).exists()
