"""The ledger grants what is left, refuses the rest in words, and forgets nothing."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import pickle
import re
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest

from ledger_entries import FILES, UNIT, reading, reserve
from neyman import Ledger
from neyman.ledger import DELTA, Account, BudgetRefused, LedgerError
from neyman.ledger import UNIT as ONE


@pytest.fixture
def ledger(place: str) -> Ledger:
    ledger = Ledger(place)
    ledger.create("census@1", cap="2.63", delta_cap="1/1000", **UNIT)
    return ledger


# What is granted


def test_amounts_are_exact(ledger: Ledger):
    for dataset, charges in (("a@1", ["0.1"] * 10), ("b@1", ["1/3", "1/6"] * 2)):
        ledger.create(dataset, cap=1, **UNIT)
        for charge in charges:
            reserve(ledger, charge, dataset=dataset)
        assert ledger.account(dataset).left == 0
        with pytest.raises(BudgetRefused):
            reserve(ledger, Fraction(1, 10**300), dataset=dataset)


@pytest.mark.parametrize(("name", "amount"), [("cap", 0), ("cap", 10**30), ("delta_cap", 1)])
def test_a_cap_that_protects_nobody_is_refused_by_name(ledger: Ledger, name: str, amount: int):
    caps = {"cap": 1, "delta_cap": 0} | {name: amount}
    with pytest.raises(ValueError, match=f"^{name} = {amount} must be"):
        ledger.create("open@1", **caps, **UNIT)
    with pytest.raises(ValueError, match="cap has more than 1200 digits"):
        ledger.create("open@1", cap=Fraction(7**1500, 7**1500 + 1), **UNIT)
    assert "open@1" not in ledger.datasets()


def test_what_no_unit_holds_is_rounded_against_the_spender(ledger: Ledger):
    product = ledger.create("odd@1", cap="1/17", delta_cap="1/17", **UNIT)
    assert product.cap == Fraction(ONE // 17, ONE) < Fraction(1, 17)
    assert product.delta_cap == Fraction(DELTA // 17, DELTA) < Fraction(1, 17)
    entry = reserve(ledger, "1/1700", dataset="odd@1", delta=Fraction(1, 10**40))
    assert (entry.charge, entry.delta) == (Fraction(1, 1700), Fraction(1, 10**40))
    account = ledger.account("odd@1")
    assert account.spent == Fraction(ONE // 1700 + 1, ONE)
    assert account.spent_delta == Fraction(1, DELTA)
    with pytest.raises(BudgetRefused):
        ledger.check("odd@1", charge=Fraction(1, 17) - Fraction(1, 1700), **UNIT)
    assert ledger.create("odd@1", cap="1/17", delta_cap="1/17", **UNIT) == account


# States


def test_an_unfinished_entry_counts_as_spent_for_ever(ledger: Ledger):
    entry = reserve(ledger, 1)
    assert entry.state == "reserved"
    assert ledger.begin(entry.id).state == "reading"
    reserve(ledger, 1)
    assert ledger.account("census@1").spent == 2
    with pytest.raises(LedgerError, match="is reading: data were read, or may have been"):
        ledger.void(entry.id)
    with pytest.raises(BudgetRefused):
        reserve(ledger, 1)


def test_what_never_began_reading_is_given_back_once(ledger: Ledger):
    entry = reserve(ledger, 2, delta="1/1000")
    assert ledger.void(entry.id).state == "void"
    assert ledger.void(entry.id).state == "void"
    account = ledger.account("census@1")
    assert (account.spent, account.spent_delta, account.entries) == (0, 0, 0)
    with pytest.raises(LedgerError, match=r"is void: a later run .* run the plan again"):
        ledger.begin(entry.id)
    with pytest.raises(LedgerError, match="is void: nothing may be published"):
        ledger.finish(entry.id, FILES)
    assert [e.state for e in ledger.entries("census@1")] == ["void"]


def test_the_same_key_takes_the_place_of_what_never_read(ledger: Ledger):
    first = reserve(ledger, 2, key="k")
    second = reserve(ledger, 2, key="k")
    assert ledger.account("census@1").spent == 2
    with pytest.raises(LedgerError, match="is void"):
        ledger.begin(first.id)
    assert ledger.begin(second.id).state == "reading"


def test_the_same_key_is_refused_after_reading_unless_charged_again(ledger: Ledger):
    first = reading(ledger, "0.5", key="k")
    with pytest.raises(LedgerError, match=r"entry 1 of census@1 .* --charge-again"):
        reserve(ledger, "0.5", key="k")
    second = reserve(ledger, "0.5", key="k", again=True)
    assert first.id != second.id
    assert ledger.account("census@1").spent == 1
    ledger.void(second.id)
    with pytest.raises(LedgerError, match=r"entry 1 of census@1 .* --charge-again"):
        reserve(ledger, "0.5", key="k")


def test_a_refused_replacement_leaves_the_first_as_it_was(ledger: Ledger):
    first = reserve(ledger, 1, key="k")
    with pytest.raises(BudgetRefused):
        reserve(ledger, 3, key="k")
    assert ledger.entries("census@1") == (first,)
    assert ledger.begin(first.id).state == "reading"


def test_a_published_key_is_not_charged_again(ledger: Ledger):
    ledger.finish(reading(ledger, 1, key="k").id, FILES)
    for again in (False, True):
        with pytest.raises(LedgerError, match="is published already, by entry 1"):
            reserve(ledger, 1, key="k", again=again)
    assert ledger.account("census@1").spent == 1


def test_an_entry_begins_once(ledger: Ledger):
    entry = reading(ledger, 1)
    with pytest.raises(LedgerError, match="has begun already"):
        ledger.begin(entry.id)
    ledger.finish(entry.id, FILES)
    with pytest.raises(LedgerError, match="is released already"):
        ledger.begin(entry.id)
    for call in (ledger.begin, ledger.void, ledger.entry):
        with pytest.raises(LedgerError, match="no entry 99"):
            call(99)


def test_nothing_is_published_by_what_has_not_begun(ledger: Ledger):
    entry = reserve(ledger, 1)
    with pytest.raises(LedgerError, match="has not begun reading"):
        ledger.finish(entry.id, FILES)


# Parts and allocations


def test_disjoint_parts_have_the_cap_each(ledger: Ledger):
    ledger.create("p@1", cap=1, parts=("north", "south"), **UNIT)
    reserve(ledger, "0.5", dataset="p@1", part="north")
    reserve(ledger, "0.3", dataset="p@1", part="south")
    reserve(ledger, "0.25", dataset="p@1")
    account = ledger.account("p@1")
    assert [(p.name, p.spent, p.entries) for p in account.parts] == [
        ("north", Fraction(3, 4), 2),
        ("south", Fraction(11, 20), 2),
    ]
    assert (account.spent, account.left) == (Fraction(3, 4), Fraction(1, 4))
    reserve(ledger, "0.45", dataset="p@1", part="south")
    with pytest.raises(BudgetRefused, match=r"p@1, part south: asked for 0\.1 .* 0 of 1 is left"):
        reserve(ledger, "0.1", dataset="p@1", part="south")
    with pytest.raises(BudgetRefused, match="part south"):
        reserve(ledger, "0.1", dataset="p@1")
    reserve(ledger, "0.25", dataset="p@1", part="north")
    with pytest.raises(LedgerError, match=r"p@1 has no part 'west'; declared .* north, south"):
        reserve(ledger, "0.1", dataset="p@1", part="west")
    with pytest.raises(LedgerError, match=r"has no part 'north'; declared .* none"):
        reserve(ledger, "0.1", part="north")


def test_an_account_has_the_most_delta_and_the_most_entries_of_its_parts(ledger: Ledger):
    ledger.create("p@1", cap=1, delta_cap="0.01", parts=("north", "south"), **UNIT)
    for part, delta in (("north", "0.001"), ("south", "0.003"), ("south", "0.002")):
        reserve(ledger, "0.1", dataset="p@1", part=part, delta=delta)
    account = ledger.account("p@1")
    assert (account.spent_delta, account.left_delta) == (Fraction(1, 200), Fraction(1, 200))
    assert account.entries == 2
    with pytest.raises(BudgetRefused, match=r"0\.006.*0\.005 of 0\.01"):
        reserve(ledger, "0.1", dataset="p@1", part="south", delta="0.006")
    with pytest.raises(BudgetRefused, match="part south"):
        reserve(ledger, "0.1", dataset="p@1", delta="0.007")
    ledger.allocate("p@1", "team", cap=1, delta_cap="0.007")
    team = ledger.account("p@1", "team")
    assert (team.spent_delta, team.left_delta) == (0, Fraction(1, 200))
    reserve(ledger, "0.1", dataset="p@1", part="south", delta="0.005")
    assert ledger.account("p@1").left_delta == 0


def test_what_is_no_name_is_refused_before_a_row_is_read(ledger: Ledger):
    for name in ("dataset", "account", "part"):
        for value in (5, None, "a\nb", "x" * 201):
            asked: Any = {"dataset": "census@1", "account": "", "part": "", name: value}
            with pytest.raises(ValueError, match=f"^{name} = "):
                ledger.check(charge=0, **UNIT, **asked)


def test_a_refusal_names_the_dataset_where_an_allocation_holds_as_little(ledger: Ledger):
    ledger.allocate("census@1", "team", cap="2.63", delta_cap="1/1000")
    with pytest.raises(BudgetRefused, match=r"census@1: asked"):
        reserve(ledger, 3, account="team")
    with pytest.raises(BudgetRefused, match=r"census@1: asked"):
        reserve(ledger, 1, account="team", delta="1/2")


def test_an_entry_that_was_handed_out_is_the_one_that_is_meant(ledger: Ledger):
    entry = reserve(ledger, "0.1")
    other = {
        **dict.fromkeys(("dataset", "to", "part", "key", "created"), "other"),
        **dict.fromkeys(("charge", "delta"), Fraction(7)),
    }
    for name, value in other.items():
        with pytest.raises(LedgerError, match="is not the charge that was reserved"):
            ledger.begin(dataclasses.replace(entry, **{name: value}))
    ledger.begin(entry)


def test_an_allocation_can_exceed_nothing_that_it_is_part_of(ledger: Ledger):
    ledger.allocate("census@1", "team", cap=2)
    ledger.allocate("census@1", "alice", cap=1, of="team", delta_cap=0)
    ledger.allocate("census@1", "bob", cap="1.5", of="team")
    reserve(ledger, "0.75", account="alice")
    reserve(ledger, "1.25", account="bob", delta="1/2000")
    spent = {a.to: (a.spent, a.left, a.of) for a in ledger.allocations("census@1")}
    assert spent == {
        "team": (2, 0, ""),
        "alice": (Fraction(3, 4), 0, "team"),
        "bob": (Fraction(5, 4), 0, "team"),
    }
    assert ledger.account("census@1").spent == 2
    with pytest.raises(BudgetRefused, match=r"allocation team: asked for 0.25"):
        reserve(ledger, "0.25", account="alice")
    with pytest.raises(BudgetRefused, match=r"asked for 0\.001 delta, and 0 of 0 is left"):
        reserve(ledger, 0, account="alice", delta="0.001")
    reserve(ledger, "0.63")
    with pytest.raises(LedgerError, match=r"has no allocation 'carol'; it has: alice, bob, team"):
        reserve(ledger, "0.1", account="carol")
    entry = ledger.entries("census@1")[0]
    assert (entry.to, entry.part, entry.state) == ("alice", "", "reserved")
    ledger.void(entry.id)
    assert ledger.account("census@1", "team").spent == Fraction(5, 4)


def test_an_allocation_is_no_larger_than_what_it_is_part_of(ledger: Ledger):
    ledger.allocate("census@1", "team", cap=1)
    large: list[dict[str, Any]] = [
        {"cap": 3}, {"cap": 1, "delta_cap": "1/10"}, {"cap": 2, "of": "team"},
    ]  # fmt: skip
    for terms in large:
        with pytest.raises(LedgerError, match="must be at most that of"):
            ledger.allocate("census@1", "alice", **terms)
    with pytest.raises(LedgerError, match="no allocation 'nobody'"):
        ledger.allocate("census@1", "alice", cap=1, of="nobody")
    product = ledger.allocate("census@1", "alice", cap="1/2", of="team")
    assert ledger.allocate("census@1", "alice", cap="0.5", of="team") == product
    for terms in ({"cap": "1/4", "of": "team"}, {"cap": "1/2"}):
        with pytest.raises(
            LedgerError,
            match=r"alice of census@1 is registered with (cap|of) = .*"
            " another allocation is another name",
        ):
            ledger.allocate("census@1", "alice", **terms)
    with pytest.raises(ValueError, match="account = "):
        ledger.allocate("census@1", "a/b", cap=1)


def test_accounts_are_independent(ledger: Ledger):
    ledger.create("census@2", cap=1, currency="gdp", **UNIT)
    ledger.finish(reading(ledger, 2, key="k").id, FILES)
    assert ledger.account("census@2").left == 1
    assert ledger.published("census@2", "k") is None
    assert ledger.entries("census@2") == ()
    assert [a.dataset for a in ledger.datasets()] == ["census@1", "census@2"]


def test_what_check_admits_reserve_grants_and_check_writes_nothing(ledger: Ledger):
    before = ledger.datasets()
    assert isinstance(ledger.check("census@1", charge="2.63", delta="1/1000", **UNIT), Account)
    assert ledger.datasets() == before
    reserve(ledger, "2.63", delta="1/1000")
    with pytest.raises(BudgetRefused):
        ledger.check("census@1", charge="1/10", **UNIT)
    ledger.check("census@1", charge=0, **UNIT)


# What is published


def test_a_retry_gets_the_same_bytes(ledger: Ledger, place: str):
    assert ledger.published("census@1", "k") is None
    entry = reading(ledger, 1, key="k")
    assert ledger.published("census@1", "k") is None
    done = ledger.finish(entry.id, FILES)
    assert (done.id, done.state) == (entry.id, "released")
    again = Ledger(place).published("census@1", "k")
    assert again == (done, FILES)


def test_files_come_and_go_in_pieces(ledger: Ledger, tmp_path: Path):
    noise, zeros = os.urandom(2_500_000), bytes(3 << 20)
    (tmp_path / "noise").write_bytes(noise)
    (tmp_path / "nothing").touch()
    files = {"noise": tmp_path / "noise", "zeros": zeros, "nothing": tmp_path / "nothing"}
    done = ledger.finish(reading(ledger, 1, key="k").id, files)
    published = ledger.published("census@1", "k")
    assert published is not None
    assert [len(piece) for piece in published[1].chunks("noise")] == [1 << 20, 1 << 20, 402_848]
    assert published[1] == {"noise": noise, "zeros": zeros, "nothing": b""}
    hashes = {name: hashlib.sha256(published[1][name]).hexdigest() for name in files}
    answer = json.dumps(hashes, sort_keys=True, separators=(",", ":"))
    assert done.digest == hashlib.sha256(answer.encode()).hexdigest()


def test_a_file_that_cannot_be_read_leaves_the_entry_to_be_finished(ledger: Ledger, tmp_path: Path):
    entry = reading(ledger, 1, key="k")
    files = {"a": os.urandom(9 << 20), "b": tmp_path / "missing"}
    with pytest.raises(LedgerError, match="missing cannot be read: No such file"):
        ledger.finish(entry.id, files)
    assert ledger.published("census@1", "k") is None
    assert ledger.entry(entry.id).state == "reading"
    ledger.finish(entry.id, {"a": b"whole"})
    assert ledger.published("census@1", "k") == (ledger.entry(entry.id), {"a": b"whole"})
    assert ledger.verify().problems == ()


def test_only_the_first_to_finish_is_published(ledger: Ledger):
    first = reading(ledger, 1, key="k")
    second = reading(ledger, 1, key="k", again=True)
    ledger.finish(second.id, {"a": b"second"})
    assert ledger.finish(first.id, {"a": b"first"}).id == second.id
    published = ledger.published("census@1", "k")
    assert published is not None
    assert (published[0].id, published[1]) == (second.id, {"a": b"second"})
    assert [e.state for e in ledger.entries("census@1")] == ["released", "released"]
    assert ledger.entry(first.id).digest == ledger.entry(second.id).digest


def test_an_entry_finishes_once(ledger: Ledger):
    entry = reading(ledger, 1, key="k")
    ledger.finish(entry.id, FILES)
    with pytest.raises(LedgerError, match="is released already"):
        ledger.finish(entry.id, {"a": b"other"})
    with pytest.raises(LedgerError, match="no entry 99"):
        ledger.finish(99, FILES)
    assert ledger.published("census@1", "k") == (ledger.entries("census@1")[0], FILES)


def test_entries_hold_what_was_said(ledger: Ledger):
    mechanisms = [{"query": "total", "sigma2": "9/4", "count": 437, "odd": "\ud800 ü \u2028"}]
    entry = ledger.reserve(
        "census@1", key="ab" * 32, charge=1, mechanisms=mechanisms, plan='{"schema": 2}', **UNIT
    )
    assert ledger.entries("census@1") == (entry,)
    assert ledger.entry(1) == entry
    assert entry.mechanisms == mechanisms
    assert json.loads(entry.plan) == {"schema": 2}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", entry.created)
    assert entry.finished is None
    assert hash(entry) == hash(dataclasses.replace(entry))
    later = [reserve(ledger, 0) for _ in range(3)]
    assert ledger.entries("census@1", last=2) == tuple(later[1:])


# What is refused, and how


@pytest.mark.parametrize(("currency", "charge", "text"), [
    (
        "zcdp",
        3,
        "asked for 3 zCDP rho, and 2 of 2 is left: 1 too much. Gaussian noise with varian",
    ),
    (
        "gdp",
        "2.00001",
        "0.00001 too much. Gaussian noise with variance 1.01 times as large, or other noise "
        "with a scale 1.01 times as large, would fit.",
    ),
    (
        "pure",
        8000,
        "asked for 8000 epsilon, and 2 of 2 is left: 7998 too much. Noise with a sca",
    ),
    ("pure", 2001, "a scale 1010 times as large would fit."),
    ("renyi:8.0", 3, "asked for 3 Renyi epsilon at order 8"),
])  # fmt: skip
def test_a_refusal_says_what_would_fit(place: str, currency: str, charge, text: str):
    ledger = Ledger(place)
    ledger.create("census@1", cap=2, currency=currency, **UNIT)
    with pytest.raises(BudgetRefused, match=re.escape(text)) as refusal:
        reserve(ledger, charge)
    factor = re.search(r"(\S+) times as large", str(refusal.value))
    assert factor
    assert 2 * Fraction(factor[1]) >= refusal.value.requested
    assert str(pickle.loads(pickle.dumps(refusal.value))) == str(refusal.value)


def _renyi_of_laplace(epsilon: float) -> float:
    return math.log(8 / 15 * math.exp(7 * epsilon) + 7 / 15 * math.exp(-8 * epsilon)) / 7


LAPLACE_COSTS = {
    "pure": lambda epsilon: epsilon,
    "zcdp": lambda epsilon: epsilon * math.tanh(epsilon / 2),
    "gdp": lambda epsilon: (2 * NormalDist().inv_cdf(1 / (1 + math.exp(-epsilon)))) ** 2,
    "renyi:8": _renyi_of_laplace,
}


@pytest.mark.parametrize("currency", LAPLACE_COSTS)
@pytest.mark.parametrize("epsilon", [0.5, 10.0])
def test_laplace_noise_with_the_scale_that_a_refusal_names_fits(currency: str, epsilon: float):
    cost = LAPLACE_COSTS[currency]
    asked = Fraction(cost(epsilon))
    refusal = str(BudgetRefused("census@1", currency, asked, asked / 9, asked))
    scale = re.search(r"scale (\S+) times as large", refusal)
    assert scale
    assert cost(epsilon / float(scale[1])) <= math.nextafter(asked / 9, math.inf)
    if "variance" in refusal:
        assert cost(epsilon / 3) > asked / 9
        assert "Gaussian noise with variance" in refusal


def test_a_refusal_where_nothing_is_left(ledger: Ledger):
    reserve(ledger, "2.63")
    with pytest.raises(BudgetRefused, match=r"0 of 2\.63 is left: 1 too much\. Nothing would fit"):
        reserve(ledger, 1)


def test_a_refusal_for_delta(ledger: Ledger):
    says = r"A delta of at most 0\.001 would fit\. The cap is the --delta-cap"
    with pytest.raises(BudgetRefused, match=says) as refusal:
        reserve(ledger, 1, delta="1/500")
    assert refusal.value.currency == "delta"
    assert refusal.value.difference == Fraction(1, 1000)
    assert ledger.entries("census@1") == ()


def test_an_unregistered_dataset_is_refused_and_the_registered_are_named(ledger: Ledger):
    ledger.create("other@7", cap=1, **UNIT)
    for call in (
        lambda: reserve(ledger, 1, dataset="census@2"),
        lambda: ledger.check("census@2", charge=1, **UNIT),
        lambda: ledger.account("census@2"),
        lambda: ledger.entries("census@2"),
        lambda: ledger.published("census@2", "k"),
    ):
        with pytest.raises(LedgerError, match=r"census@2 is not registered.*census@1, other@7"):
            call()


@pytest.mark.parametrize(
    "change", [{"protects": "household"}, {"neighboring": "add-remove"}, {"rows": 5}]
)
def test_another_unit_is_refused(ledger: Ledger, change: dict):
    with pytest.raises(LedgerError, match="registered for person, replace-one, at most 1 row,"):
        ledger.check("census@1", charge=1, **(UNIT | change))
    with pytest.raises(LedgerError, match=str(*change.values())):
        ledger.reserve("census@1", key="k", charge=1, mechanisms=[], plan="{}", **(UNIT | change))


def test_registering_again(ledger: Ledger):
    reserve(ledger, 1)
    same = ledger.create("census@1", cap=Fraction(263, 100), delta_cap="0.001", **UNIT)
    assert same.spent == 1
    for change in ({"cap": 3}, {"delta_cap": 0}, {"currency": "gdp"}, {"rows": 2}):
        terms = {"cap": "2.63", "delta_cap": "0.001", **UNIT, **change}
        with pytest.raises(LedgerError, match=f"registered with {next(iter(change))} = "):
            ledger.create("census@1", **terms)
    assert len(ledger.datasets()) == 1


def test_a_mistake_in_the_terms_says_how_to_go_on_until_something_is_charged(ledger: Ledger):
    advice = r"nothing was charged to it.*another name@version, such as census@1-b"
    with pytest.raises(LedgerError, match=advice):
        ledger.create("census@1", cap=3, delta_cap="0.001", **UNIT)
    with pytest.raises(LedgerError, match=advice):
        ledger.check("census@1", charge=1, **(UNIT | {"rows": 5}))
    reserve(ledger, 1)
    for call in (
        lambda: ledger.create("census@1", cap=3, delta_cap="0.001", **UNIT),
        lambda: ledger.check("census@1", charge=1, **(UNIT | {"rows": 5})),
    ):
        with pytest.raises(LedgerError, match=r"census@1 is registered") as refusal:
            call()
        assert "only the custodian" in str(refusal.value)
        assert "census@1-b" not in str(refusal.value)
        assert "another name" not in str(refusal.value)


@pytest.mark.parametrize(("argument", "value"), [
    ("dataset", "census"), ("dataset", "@1"), ("dataset", "a b@1"), ("dataset", "a@1@2"),
    ("dataset", "../x@1"), ("dataset", "a@1\n"), ("dataset", None), ("protects", ""),
    ("protects", "a\nb"), ("neighboring", "any"), ("neighboring", None), ("rows", 0),
    ("rows", 1.0), ("currency", "epsilon"), ("currency", "renyi"), ("currency", "renyi:1"),
    ("currency", "zcdp:2"), ("currency", None), ("cap", 0), ("cap", -1), ("cap", math.inf),
    ("cap", math.nan), ("cap", "one"), ("cap", True), ("cap", Fraction(1, 10**2000)),
    ("cap", "1e400"), ("cap", 10**6 + 1), ("cap", Fraction(1, 10**13)),
    ("delta_cap", Fraction(1, 10**19)), ("parts", ("north",)), ("parts", ("north", "north")),
    ("parts", ("a b", "c")), ("parts", "north"), ("delta_cap", -1), ("delta_cap", 1),
])  # fmt: skip
def test_bad_terms_are_refused_by_name_and_nothing_is_made(tmp_path: Path, argument: str, value):
    terms = {"dataset": "census@1", "cap": 1, **UNIT, argument: value}
    ledger = Ledger(tmp_path / "ledger.db")
    with pytest.raises((ValueError, TypeError), match=argument):
        ledger.create(**terms)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("argument", "value"), [
    ("charge", -1), ("charge", math.nan), ("charge", None), ("delta", "2"), ("delta", -0.5),
    ("key", ""), ("key", b"k"), ("mechanisms", [math.nan]), ("mechanisms", {1j}), ("plan", "{"),
    ("plan", {}),
])  # fmt: skip
def test_bad_reservations_are_refused_by_name_and_nothing_is_spent(ledger, argument, value):
    good = {"key": "k", "charge": 1, "delta": 0, "mechanisms": [], "plan": "{}"}
    with pytest.raises((ValueError, TypeError), match=argument):
        ledger.reserve("census@1", **UNIT, **(good | {argument: value}))
    assert ledger.account("census@1").entries == 0


@pytest.mark.parametrize("files", [
    {}, {"": b""}, {"/etc/passwd": b""}, {"a/../../b": b""}, {"./a": b""}, {"a//b": b""},
    {"a\\b": b""}, {"a": "text"}, {1: b""},
])  # fmt: skip
def test_bad_files_are_refused_and_the_entry_stays_as_it_was(ledger: Ledger, files):
    entry = reading(ledger, 1)
    with pytest.raises((ValueError, TypeError), match="files"):
        ledger.finish(entry.id, files)
    assert ledger.entries("census@1") == (entry,)
