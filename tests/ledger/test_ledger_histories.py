"""Any history of a ledger agrees with fractions kept beside it, on either store."""

from __future__ import annotations

import itertools
import math
import re
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from attacks import SIZE
from ledger_entries import UNIT, reserve
from neyman import Ledger
from neyman.ledger import DELTA, BudgetRefused, LedgerError
from neyman.ledger import UNIT as ONE


class AgainstFractions(RuleBasedStateMachine):
    """Any sequence of calls answers as sums of fractions would, and the chain always verifies."""

    amounts = st.fractions(min_value=0, max_value=2, max_denominator=50)
    tries = st.integers(0, 20)

    def __init__(self, url: str):
        super().__init__()
        self.ledger = Ledger(url)
        self.parts: dict[str, tuple[str, ...]] = {}
        self.population: dict[str, str] = {}
        self.holders: dict[tuple[str, str], tuple[Fraction, tuple[str, ...]]] = {}
        self.entries: dict[int, dict] = {}
        self.published: dict[tuple[str, str], tuple[int, dict]] = {}
        self.sequel: dict[int, int | None] = {}
        self.approved: set[str] = set()
        self.checkpoints: list = []

    def counted(self, dataset: str, holder: str, part: str, what: str = "charge") -> Fraction:
        """What is spent, by definition: charges rounded up, of entries that are not void."""
        per = ONE if what == "charge" else DELTA
        return sum(
            (
                Fraction(math.ceil(e[what] * per), per)
                for e in self.entries.values()
                if e["dataset"] == dataset
                and e["state"] != "void"
                and holder in self.holders[dataset, e["to"]][1]
                and (not e["part"] or e["part"] == part)
            ),
            Fraction(0),
        )

    def largest(self, dataset: str, what: str) -> Fraction:
        """The largest total of a part."""
        return max(self.counted(dataset, "", part, what) for part in self.parts[dataset] or [""])

    def spent(self, dataset: str, holder: str, part: str, what: str = "charge") -> Fraction:
        """With the largest total of each edition, if the account is a population's."""
        editions = [] if holder else [e for e, p in self.population.items() if p == dataset]
        own = self.counted(dataset, holder, part, what)
        return own + sum(self.largest(edition, what) for edition in editions)

    def cap(self, dataset: str, holder: str, what: str) -> Fraction:
        per = ONE if what == "charge" else DELTA
        cap = self.holders[dataset, holder][0] if what == "charge" else Fraction(1, 2)
        return Fraction(math.floor(cap * per), per)

    @initialize(parts=st.sampled_from([(), ("n", "s")]), cap=st.fractions(1, 3, max_denominator=9))
    def first(self, parts, cap):
        self.create("a@1", cap, parts)
        terms: dict = {"cap": cap, "delta_cap": "1/2", "parts": parts, **UNIT}
        self.ledger.create("d@1", approval="required", **terms)
        self.parts["d@1"], self.holders["d@1", ""] = parts, (cap, ("",))

    @rule(key=st.sampled_from("xyz"), revoke=st.booleans())
    def approve(self, key, revoke):
        def call():
            if revoke:
                return self.ledger.revoke("d@1", key, who="b")
            return self.ledger.approve("d@1", key, plan="p", who="b")

        if (key in self.approved) == revoke:
            call()
            self.approved ^= {key}
        else:
            with pytest.raises(LedgerError, match=r"is not approved|is approved already"):
                call()

    @rule(
        name=st.sampled_from(["a@1", "b@1", "c@1"]),
        cap=st.fractions(1, 3, max_denominator=9),
        parts=st.sampled_from([(), ("n", "s")]),
    )
    def create(self, name, cap, parts):
        def call():
            return self.ledger.create(name, cap=cap, delta_cap="1/2", parts=parts, **UNIT)

        if name in self.parts and (self.parts[name], self.holders[name, ""][0]) != (parts, cap):
            with pytest.raises(LedgerError, match=r"registered with (cap|parts)"):
                call()
        else:
            call()
            self.parts[name] = parts
            self.holders[name, ""] = (cap, ("",))

    @rule(
        edition=st.sampled_from(["a@1", "b@1", "c@1", "d@1"]),
        population=st.sampled_from(["b@1", "c@1", "c@1"]),
    )
    def join(self, edition, population):
        def call():
            return self.ledger.join(edition, population)

        known = self.population
        if known.get(edition) == population:
            call()
            return
        if (
            {edition, population} - self.parts.keys()
            or edition == population
            or edition in {*known, *known.values()}
            or population in known
        ):
            with pytest.raises(LedgerError, match=r"not registered|is an edition|has editions"):
                call()
            return
        if any(
            self.largest(edition, what) > self.left(population, "", "", what)
            for what in ("charge", "delta")
        ):
            with pytest.raises(BudgetRefused, match=population):
                call()
            return
        call()
        known[edition] = population

    @rule(
        to=st.sampled_from(["t", "u"]),
        of=st.sampled_from(["", "t", "u"]),
        cap=st.fractions(Fraction(1, 2), 2, max_denominator=4),
    )
    def allocate(self, to, of, cap):
        known = self.holders.get(("a@1", of))
        there = self.holders.get(("a@1", to))
        same = there and known and there == (cap, (*known[1], to))
        if same or (known and not there and cap <= Fraction(math.floor(known[0] * ONE), ONE)):
            self.ledger.allocate("a@1", to, of=of, cap=cap)
            above = known[1] if known else ()
            self.holders["a@1", to] = (cap, (*above, to))
        else:
            with pytest.raises(
                LedgerError, match=r"no allocation|more than|at most that of|registered with"
            ):
                self.ledger.allocate("a@1", to, of=of, cap=cap)

    @rule(
        name=st.sampled_from(["a@1", "a@1", "b@1", "c@1", "d@1"]),
        to=st.sampled_from(["", "", "t", "u"]),
        part=st.sampled_from(["", "", "n", "s"]),
        key=st.sampled_from("xyz"),
        again=st.booleans(),
        charge=amounts,
        delta=st.fractions(0, 1, max_denominator=8),
    )
    def reserve(self, name, to, part, key, again, charge, delta):
        def call():
            more = {"account": to, "part": part, "again": again, "delta": delta}
            return reserve(self.ledger, charge, dataset=name, key=key, **more)

        if (name, to) not in self.holders or (part and part not in self.parts[name]):
            with pytest.raises(LedgerError, match=r"not registered|no allocation|no part"):
                call()
            return
        same = [e for e in self.entries.values() if (e["dataset"], e["key"]) == (name, key)]
        states = {e["state"] for e in same}
        if "released" in states or ("reading" in states and not again):
            with pytest.raises(LedgerError, match=r"published already|--charge-again"):
                call()
            return
        replaced = [e for e in same if e["state"] == "reserved"]
        for e in replaced:
            e["state"] = "void"
        left = self.left(name, to, part)
        left_delta = self.left(name, to, part, "delta")
        if charge > left or delta > left_delta:
            with pytest.raises(BudgetRefused) as refusal:
                call()
            of_charge = charge > left
            asked, had = (charge, left) if of_charge else (delta, left_delta)
            assert (refusal.value.requested, refusal.value.left) == (asked, had)
            assert refusal.value.difference == asked - had
            assert refusal.value.currency == ("zcdp" if of_charge else "delta")
            for e in replaced:
                e["state"] = "reserved"
            return
        if name == "d@1" and key not in self.approved:
            with pytest.raises(LedgerError, match="needs an approval of each charge"):
                call()
            for e in replaced:
                e["state"] = "reserved"
            return
        entry = call()
        assert entry.id == len(self.entries) + 1
        self.entries[entry.id] = {
            "dataset": name, "to": to, "part": part, "key": key, "charge": charge, "delta": delta,
            "state": "reserved",
        }  # fmt: skip

    def left(self, dataset, to, part, what="charge"):
        own = [part] if part else self.parts[dataset] or [""]
        lefts = [
            self.cap(dataset, holder, what) - self.spent(dataset, holder, one, what)
            for holder in self.holders[dataset, to][1]
            for one in own
        ]
        if population := self.population.get(dataset):
            # A part with less than the largest total has this much before it counts.
            room = self.largest(dataset, what) - max(
                self.counted(dataset, "", one, what) for one in own
            )
            lefts += [
                self.cap(population, "", what) - self.spent(population, "", one, what) + room
                for one in self.parts[population] or [""]
            ]
        return min(lefts)

    @rule(pick=tries, what=st.sampled_from(["begin", "begin", "void"]))
    def change(self, pick, what):
        if not self.entries:
            return
        number = pick % len(self.entries) + 1
        state = self.entries[number]["state"]
        if state == "reserved" or (state, what) == ("void", "void"):
            getattr(self.ledger, what)(number)
            self.entries[number]["state"] = "reading" if what == "begin" else "void"
        else:
            with pytest.raises(LedgerError, match=f"entry {number} of"):
                getattr(self.ledger, what)(number)

    def standing(self) -> list[int]:
        published = [number for number, _ in self.published.values()]
        return [number for number in published if number not in self.sequel]

    @rule(pick=tries, content=st.binary(), old=st.integers(0, 3))
    def finish(self, pick, content, old):
        reading = [n for n, e in self.entries.items() if e["state"] == "reading"]
        for number in reading[: pick % 3]:
            entry = self.entries[number]
            where = (entry["dataset"], entry["key"])
            corrects = old if old in self.standing() and where not in self.published else None
            published = self.published.setdefault(where, (number, {"a": content}))
            finished = self.ledger.finish(number, {"a": content}, corrects=corrects, why="a slip")
            assert finished.id == published[0]
            entry["state"] = "released"
            if corrects is not None:
                self.sequel[corrects] = number

    @rule(number=st.integers(1, 6), corrects=st.booleans())
    def withdraw(self, number, corrects):
        call = self.ledger.correctable if corrects else lambda n: self.ledger.withdraw(n, "a slip")
        if number in self.standing():
            assert call(number).id == number
            if not corrects:
                self.sequel[number] = None
        else:
            refused = "there is no entry|is not published|is corrected already|is withdrawn"
            with pytest.raises(LedgerError, match=refused):
                call(number)

    @rule(number=st.integers(1, 6))
    def balance(self, number):
        entry = self.entries.get(number)
        if entry is None or entry["state"] == "void":
            return
        said = self.ledger.balance(number)
        people = self.population.get(entry["dataset"], entry["dataset"])
        assert (said.account, said.cap) == (people, self.cap(people, "", "charge"))
        assert said.left == self.left(entry["dataset"], entry["to"], "")
        state, entry["state"] = entry["state"], "void"
        parts = self.parts[people] or ("",)
        assert said.spent == max(self.spent(people, "", part) for part in parts)
        entry["state"] = state

    @rule()
    def keep(self):
        self.checkpoints.append(self.ledger.checkpoint())

    @invariant()
    def agrees(self):
        for (dataset, holder), (cap, _) in self.holders.items():
            account = self.ledger.account(dataset, holder)
            parts = self.parts[dataset] or ("",)
            spent = max(self.spent(dataset, holder, part) for part in parts)
            assert account.spent == spent <= cap
            assert account.spent_delta == max(
                self.spent(dataset, holder, part, "delta") for part in parts
            )
            assert account.population == self.population.get(dataset, "")
            assert account.left == self.left(dataset, holder, "") >= 0
            assert account.left_delta == self.left(dataset, holder, "", "delta") >= 0
        for dataset in self.parts:
            by_key = {
                e.id: {k: getattr(e, k) for k in ("dataset", "to", "part", "key", "charge")}
                | {"delta": e.delta, "state": e.state}
                for e in self.ledger.entries(dataset)
            }
            own = {n: e for n, e in self.entries.items() if e["dataset"] == dataset}
            assert by_key == own
            for number, entry in own.items():
                newest, chain = number, []
                while newest in self.sequel:
                    newest = self.sequel[newest]
                    chain.append(newest)
                assert [one.entry for one in self.ledger.sequels(number)] == chain, entry
            for key in "xyz":
                answer = self.ledger.published(dataset, key)
                expected = self.published.get((dataset, key))
                assert (answer and (answer[0].id, dict(answer[1]))) == expected

    def teardown(self):
        for checkpoint in [None, *self.checkpoints]:
            assert self.ledger.verify(checkpoint).problems == ()
        self.ledger.close()


def test_any_history_agrees_with_fractions_and_verifies(place: str, attempts):
    numbers = itertools.count()

    def machine() -> AgainstFractions:
        number = next(numbers)
        attempts(1)
        url = re.sub(r"schema=\w+", lambda m: f"{m[0]}_{number}", place)
        return AgainstFractions(url if url != place else f"{place}-{number}")

    run_state_machine_as_test(
        machine,  # pyright: ignore[reportArgumentType] (it takes what makes machines, too)
        settings=settings(
            # PostgreSQL makes a schema for each.
            max_examples=SIZE * (25 if "/ledger.db" in place else 8),
            stateful_step_count=25,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
