"""A ledger's URL is read as libpq reads it, and no password in it is ever printed."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neyman.ledger import Address

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "shown", "parameters"),
    [
        ("postgresql://h/db", "postgresql://h/db?schema=neyman", {"host": "h", "dbname": "db"}),
        (
            "postgresql://ann:hunter2@h:5433/db?schema=books&sslmode=require",
            "postgresql://ann@h:5433/db?sslmode=require&schema=books",
            {"user": "ann", "password": SECRET, "host": "h", "port": "5433", "dbname": "db"}
            | {"sslmode": "require"},
        ),
        (
            "postgres:///db?host=/run/pg&user=ann&password=hunter2&sslpassword=hunter2",
            "postgresql:///db?host=/run/pg&user=ann&schema=neyman",
            {"host": "/run/pg", "user": "ann", "password": SECRET, "sslpassword": SECRET}
            | {"dbname": "db"},
        ),
        (
            "postgresql://a%40b:hunter2@[::1]:5433/db",
            "postgresql://a%40b@[::1]:5433/db?schema=neyman",
            {"user": "a@b", "password": SECRET, "host": "::1", "port": "5433", "dbname": "db"},
        ),
        (
            "postgresql://ann:hunter2@h1:1,h2:2/db?target_session_attrs=read-write",
            "postgresql://ann@h1:1,h2:2/db?target_session_attrs=read-write&schema=neyman",
            {"user": "ann", "password": SECRET, "host": "h1,h2", "port": "1,2", "dbname": "db"}
            | {"target_session_attrs": "read-write"},
        ),
    ],
)
def test_urls(url: str, shown: str, parameters: dict[str, str]):
    """All parts reach libpq, and what may be printed has every part but the secrets."""
    address = Address.read(url)
    assert address.shown == shown
    assert address.parameters == parameters
    assert SECRET not in repr(address)
    assert Address.read(address.shown).shown == shown
    assert Address.read("postgresql://h/?password=a+b%2Bc").parameters["password"] == "a+b+c"
    assert pickle.loads(pickle.dumps(address)) == address


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:hunter2@b@h/db",
        "postgresql://ann:hunter2/b@h/db",
        "postgresql://ann:12?hunter2@h/db",
        "postgresql://ann:12#hunter2@h/db",
        "postgresql://ann:hunter2%zz@h/db",
        "postgresql://ann:hunter2@h:port/db",
        "postgresql://ann:hunter2@h1,h2:port/db",
        "postgresql://ann:hunter2@[::1/db",
        "postgresql://ann:hunter2@h/db?hunter2",
        "postgresql://ann:hunter2@h/db?no_such_parameter=hunter2",
        "postgresql://ann:hunter2@h/db?schema=Hunter2",
        "postgresql://ann:hunter2@h/db?schema=pg_hunter2",
        "postgresql://ann:hunter2@h/db?schema=x%22;hunter2",
        "postgresql://ann:hunter2\u2100@h/db",
    ],
)
def test_what_cannot_be_read_is_refused_without_being_quoted(url: str):
    """An unescaped password ends up in any part of a URL, so that no part is repeated."""
    with pytest.raises(ValueError, match="url") as refusal:
        Address.read(url)
    error: BaseException | None = refusal.value
    while error is not None:
        if not error.__suppress_context__:
            assert error.__context__ is None
        assert "hunter2" not in str(error).lower()
        error = error.__cause__


@settings(max_examples=300)
@given(st.text("aZ9@:/?#%&=[]+ ,\u00e9\n", max_size=12).map(lambda text: f"ann:{text}hunter2@h/db"))
def test_no_password_is_printed_whatever_it_is_made_of(rest: str):
    """Read or refused: neither the address nor the refusal has the password's last letters."""
    try:
        said = repr(Address.read(f"postgresql://{rest}"))
    except ValueError as error:
        said = str(error)
    assert "hunter2" not in said


def test_texts_of_the_server_are_cleaned():
    """A password in a text of libpq's is hidden, and the text is one line."""
    address = Address.read("postgresql://ann:hunter2@h/db")
    assert address.hide("a\n  b hunter2 c") == "a b *** c"


def test_a_missing_driver_names_what_to_install():
    """Where psycopg is not installed, a path still works and a URL says what is missing."""
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from neyman.ledger import Ledger\n"
        "Ledger('ledger.db')\n"
        "try: Ledger('postgresql://ann:hunter2@h/db')\n"
        "except ModuleNotFoundError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == (
        "ledgers on PostgreSQL need psycopg: pip install 'neyman[postgres]'"
    )
