"""Tables without noise: three attackers and the power, against all tables of a few people."""

import csv
import datetime
import json
import os
import random
from collections import Counter
from fractions import Fraction as F
from itertools import combinations, permutations, product
from math import floor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commands import answered
from neyman.auditing import plain_tables_risk

VALUES = {"g": ["a", "b", "ü"], "s": ["x", "y", "z"]}


def write(path, head, rows):
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([head, *rows])
    return path


def toml(methods, values=VALUES):
    used = {name for method in methods for name in method["by"]}
    lines = ['attribute = "s"', "[values]"]
    lines += [f"{name} = {json.dumps(of)}" for name, of in values.items() if name in used]
    for method in methods:
        fields = {name: value for name, value in method.items() if name != "map"}
        lines += ["[[table]]", *(f"{name} = {json.dumps(value)}" for name, value in fields.items())]
        for name, kinds in method.get("map", {}).items():
            lines += [f"[table.map.{name}]", *(f"{k} = {json.dumps(v)}" for k, v in kinds.items())]
    return "\n".join(lines)


def asked(folder, rows, methods, tables, values=VALUES):
    """Ask about rows (g, s) and tables that map keys to counts."""
    paths = []
    for k, (method, table) in enumerate(zip(methods, tables, strict=True)):
        lines = [[*key, "" if count is None else count] for key, count in table.items()]
        paths.append(write(folder / f"{k}.csv", [*method["by"], "count"], lines))
    data = write(folder / "people.csv", [*values], rows)
    (folder / "method.toml").write_text(toml(methods, values), encoding="utf-8")
    return plain_tables_risk(paths, str(data), folder / "method.toml")


def category(method, name, value):
    kinds = method.get("map", {}).get(name, {})
    return next((kind for kind, values in kinds.items() if value in values), value)


def publish(rows, method):
    """The table of a method without randomness, by its definition."""
    kinds = [[*method.get("map", {}).get(name, VALUES[name])] for name in method["by"]]
    places = [[*VALUES].index(name) for name in method["by"]]
    counts = Counter(
        tuple(category(method, name, row[k]) for name, k in zip(method["by"], places, strict=True))
        for row in rows
    )
    cells = {key: counts[key] for key in product(*kinds)}
    lines = {}
    if "total" in method:
        k = method["by"].index(method["total"])
        for key in cells:
            lines.setdefault((*key[:k], "total", *key[k + 1 :]), []).append(key)
    full = cells | {total: sum(cells[key] for key in line) for total, line in lines.items()}
    if base := method.get("round"):
        return {key: base * floor(F(count, base) + F(1, 2)) for key, count in full.items()}
    if not (below := method.get("suppress")):
        return full
    shown = {key: None if 0 < count < below else count for key, count in full.items()}
    for total, line in lines.items():
        if shown[total] is not None and [shown[key] for key in line].count(None) == 1:
            rest = [key for key in line if shown[key]]
            shown[min(rest, key=lambda key: full[key])] = None
    return shown


def some_method(rng):
    by = rng.choice([["g", "s"], ["s", "g"], ["s"], ["g"]])
    method = {"by": by}
    method |= {rng.choice(["round", "suppress"]): rng.choice([2, 3])} if rng.random() < 0.7 else {}
    method |= {"total": rng.choice(by)} if rng.random() < 0.6 else {}
    for name in by:
        if rng.random() < 0.4:
            one = rng.choice(VALUES[name])
            rest = [value for value in VALUES[name] if value != one]
            method.setdefault("map", {})[name] = {"P": [one], "Q": rest}
    return method


def vectors(size, total):
    if size == 0:
        yield ()
        return
    for first in range(total + 1):
        for rest in vectors(size - 1, total - first):
            yield (first, *rest)


def certain(rows, methods, tables):
    def may_have(k, value):
        other = [*rows[:k], (rows[k][0], value), *rows[k + 1 :]]
        return all(publish(other, m) == table for m, table in zip(methods, tables, strict=True))

    others = [[value for value in VALUES["s"] if value != s] for _, s in rows]
    return sum(not any(may_have(k, value) for value in others[k]) for k in range(len(rows)))


@pytest.mark.parametrize("seed", range(24))
def test_each_attacker_learns_what_all_possible_tables_leave(seed, tmp_path):
    """Other values of one person, values of everyone, and counts of all cross cells."""
    rng = random.Random(seed)
    rows = [(rng.choice(VALUES["g"]), rng.choice(VALUES["s"])) for _ in range(rng.randint(1, 5))]
    methods = [{**some_method(rng), "by": ["g", "s"]}, *(some_method(rng) for _ in range(seed % 3))]
    tables = [publish(rows, method) for method in methods]
    risk = asked(tmp_path, rows, methods, tables)
    alone = [certain(rows, [m], [t]) for m, t in zip(methods, tables, strict=True)]
    together = [certain(rows, methods, tables)] if len(methods) > 1 else []
    assert [each["certain"] for each in risk["known_rows"]] == alone + together

    possible = [set() for _ in rows]
    for values in product(VALUES["s"], repeat=len(rows)):
        other = [(g, value) for (g, _), value in zip(rows, values, strict=True)]
        if all(publish(other, m) == table for m, table in zip(methods, tables, strict=True)):
            for own, value in zip(possible, values, strict=True):
                own.add(value)
    assert (risk["groups"], risk["groups_not_computed"]) == (
        sum(len(own) == 1 for own in possible),
        0,
    )

    def classes(name):
        """The values that no table tells apart, by their categories in the tables."""
        classes_of = {}
        for value in VALUES[name]:
            kinds = tuple(category(m, name, value) for m in methods if name in m["by"])
            classes_of.setdefault(kinds, []).append(value)
        return [*classes_of.values()]

    cells = [*product(classes("g"), classes("s"))]
    most = len(rows) + sum(method.get("round", 0) for method in methods[:1]) * 2
    if len(cells) > 6:
        return
    fits = []
    for counts in vectors(len(cells), min(most, 8)):
        other = [(g[0], s[0]) for (g, s), n in zip(cells, counts, strict=True) for _ in range(n)]
        if all(publish(other, m) == table for m, table in zip(methods, tables, strict=True)):
            fits.append(counts)
    if max(map(sum, fits)) == min(most, 8):
        return  # larger tables fit, too
    ranges = {
        tuple(map(", ".join, cell)): (min(counts), max(counts))
        for cell, counts in zip(cells, zip(*fits, strict=True), strict=True)
        if max(counts)
    }
    assert ranges == {tuple(r["cell"]): (r["least"], r["largest"]) for r in risk["ranges"]}
    assert all(each["exact"] for each in risk["ranges"])
    alone = {cell for cell, (least, most) in ranges.items() if least == most}
    named = {v: ", ".join(of) for name in VALUES for of in classes(name) for v in of}
    assert risk["cells"] == sum((named[g], named[s]) in alone for g, s in rows)


def best_power(p, q, level):
    """The power of the best test, by Neyman and Pearson, in fractions."""
    left, power = F(level), F(0)
    for key in sorted({*p, *q}, key=lambda k: -p.get(k, F(0)) / q[k] if q.get(k) else -F(10**9)):
        share = min(F(1), left / q[key]) if q.get(key) else F(1)
        power, left = power + share * p.get(key, F(0)), left - share * q.get(key, F(0))
    return power


def law_of(draws):
    law = Counter()
    for outcome, chance in draws:
        law[outcome] += chance
    return law


def rounded(rows, method):
    """Every table of random rounding, with its probability."""
    base = method["round"]
    choices = [
        [(base * (n // base), 1 - F(n % base, base)), (base * (n // base + 1), F(n % base, base))]
        for n in publish(rows, exact(method)).values()
    ]
    for choice in product(*([one for one in pair if one[1]] for pair in choices)):
        chance = F(1)
        for _, part in choice:
            chance *= part
        yield tuple(value for value, _ in choice), chance


def exact(method):
    return {name: of for name, of in method.items() if name not in ("round", "random")}


@pytest.mark.parametrize("seed", range(6))
def test_random_rounding_has_the_power_of_all_its_tables(seed, tmp_path, monkeypatch):
    rng = random.Random(seed)
    values = {"g": ["a", "b"], "s": ["x", "y"]}
    for name, of in values.items():
        monkeypatch.setitem(VALUES, name, of)
    rows = [(rng.choice("ab"), rng.choice("xy")) for _ in range(rng.randint(3, 6))]
    methods = [{"by": ["g", "s"], "round": 3, "random": True}]
    methods += [{"by": ["s", "g"], "round": 2, "random": True, "total": "g"}] * (seed % 2)

    def law(rows):
        parts = [[*rounded(rows, method)] for method in methods]
        return law_of(
            (tuple(t for t, _ in choice), choice[0][1] * (choice[-1][1] if seed % 2 else 1))
            for choice in product(*parts)
        )

    true = law(rows)
    published = rng.choice(sorted(true))
    tables = [
        dict(zip(publish(rows, exact(method)), table, strict=True))
        for method, table in zip(methods, published, strict=True)
    ]

    def fits(rows):
        return all(
            abs(count - table[key]) < method["round"]
            for method, table in zip(methods, tables, strict=True)
            for key, count in publish(rows, exact(method)).items()
        )

    risk = asked(tmp_path, rows, methods, tables, values)
    changed = [
        [*rows[:k], (g, "y" if s == "x" else "x"), *rows[k + 1 :]] for k, (g, s) in enumerate(rows)
    ]
    assert risk["known_rows"][-1]["certain"] == sum(not fits(other) for other in changed)
    possible = [
        {
            new[k]
            for new in product("xy", repeat=len(rows))
            if fits([(g, s) for (g, _), s in zip(rows, new, strict=True)])
        }
        for k in range(len(rows))
    ]
    assert risk["groups"] == sum(len(own) == 1 for own in possible)
    cells = [*product("ab", "xy")]
    counts = [
        vector
        for vector in vectors(4, len(rows) + 8)
        if fits([cell for cell, n in zip(cells, vector, strict=True) for _ in range(n)])
    ]
    pairs = zip(cells, zip(*counts, strict=True), strict=True)
    ends = {cell: (min(of), max(of)) for cell, of in pairs if max(of)}
    assert {tuple(r["cell"]): (r["least"], r["largest"]) for r in risk["ranges"]} == ends
    others = [law(other) for other in changed]
    for level in (0.01, 0.05):
        want = max(best_power(*pair, str(level)) for o in others for pair in ((true, o), (o, true)))
        bound = risk["known_rows"][-1]["power"][str(level)]
        assert F(bound["lower"]) - F(1, 10**12) <= want <= F(bound["upper"]) + F(1, 10**12)
        assert bound["upper"] - bound["lower"] < 1e-9


def swapped(rows, rate):
    """Every table of random swaps of s among rows of one h, with its probability."""
    for draws in product([False, True], repeat=len(rows)):
        places = [k for k, one in enumerate(draws) if one]
        chance = rate ** len(places) * (1 - rate) ** (len(rows) - len(places))
        orders = [
            order
            for order in permutations(places)
            if all(rows[k][2] == rows[j][2] for k, j in zip(places, order, strict=True))
        ]
        for order in orders:
            after = [s for _, s, _ in rows]
            for k, j in zip(places, order, strict=True):
                after[k] = rows[j][1]
            table = Counter((s, h, g) for (g, _, h), s in zip(rows, after, strict=True))
            yield frozenset(table.items()), chance / len(orders)


@pytest.mark.parametrize("seed", range(6))
def test_random_swaps_have_the_power_of_all_their_tables(seed, tmp_path):
    rng, rate = random.Random(seed), F(1, 1 + seed % 3)
    values = VALUES | {"h": ["m", "w"]}
    rows = [("a", "x", "m"), ("b", "y", "m")]
    rows += [tuple(map(rng.choice, ("abü", "xyz", "mw"))) for _ in range(2)]
    true = law_of(swapped(rows, rate))
    shown = dict(rng.choice(sorted(true, key=sorted)))
    method = {"by": ["s", "h", "g"], "swap": "s", "rate": str(rate), "match": ["h"]}
    risk = asked(tmp_path, rows, [method], [shown], values)
    known = risk["known_rows"][0]
    pairs = []
    for (i, one), (j, two) in combinations(enumerate(rows), 2):
        if one[0] != two[0] and one[1] != two[1] and one[2] == two[2]:
            other = [*rows]
            other[i], other[j] = (one[0], two[1], one[2]), (two[0], one[1], two[2])
            law = law_of(swapped(other, rate))
            pairs += [(true, law), (law, true)]
    assert known["certain"] == len(rows)
    assert known["power"]["0.01"]["upper"] == 1
    for level, bound in known["exchange"].items():
        want = max(best_power(*pair, level) for pair in pairs)
        assert F(bound["lower"]) - F(1, 10**12) <= want <= F(bound["upper"]) + F(1, 10**12)
    possible = [set() for _ in rows]
    for new in product("xyz", repeat=len(rows)):
        other = [(g, s, h) for (g, _, h), s in zip(rows, new, strict=True)]
        if frozenset(shown.items()) in law_of(swapped(other, F(1, 2))):
            for own, s in zip(possible, new, strict=True):
                own.add(s)
    assert risk["groups"] == sum(len(own) == 1 for own in possible)


def test_a_complementary_cell_hides_which_of_two_counts_is_small(tmp_path):
    """Either may be 1 and the other 3, and never 2 and 2. A rounded table then decides."""
    rows = [("a", "x"), *[("a", "y")] * 3, *[("b", "z")] * 2]
    hiding = {"by": ["g", "s"], "suppress": 2, "total": "s"}
    rounded_sums = {"by": ["s"], "round": 4}
    published = [publish(rows, method) for method in (hiding, rounded_sums)]
    assert [published[0]["a", s] for s in "xyz"] == [None, None, 0]
    alone = asked(tmp_path, rows, [hiding], published[:1])
    ends = {tuple(r["cell"]): (r["least"], r["largest"], r["exact"]) for r in alone["ranges"]}
    assert ends["a", "x"] == ends["a", "y"] == (1, 3, True)
    assert asked(tmp_path, rows, [hiding, rounded_sums], published)["cells"] == len(rows)


def test_an_empty_cell_has_at_least_one_person(tmp_path):
    """So both of two empty cells with a sum of 2 have 1, and each other value changes the table."""
    rows = [("a", "x"), ("a", "y"), *[("a", "z")] * 3]
    method = {"by": ["s"], "suppress": 3, "total": "s"}
    risk = asked(tmp_path, rows, [method], [publish(rows, method)])
    assert risk["known_rows"][0]["certain"] == risk["cells"] == len(rows)


PEOPLE = [("a", "x"), ("a", "x"), ("a", "y"), ("b", "y"), ("b", "z")]
EXACT = {"by": ["g", "s"]}


def test_what_one_table_hides_another_gives_away(tmp_path):
    """Rounding hides how many of a group have x, and a coarse table of the same people shows it."""
    rows = [("a", "x"), ("b", "x"), ("b", "y"), ("b", "y"), ("a", "z")]
    hiding = {"by": ["g", "s"], "suppress": 3}
    coarse = {"by": ["g", "s"], "map": {"s": {"x": ["x"], "other": ["y", "z"]}}}
    alone = asked(tmp_path, rows, [hiding], [publish(rows, hiding)])
    assert (alone["groups"], alone["cells"]) == (0, 0)
    both = asked(tmp_path, rows, [hiding, coarse], [publish(rows, m) for m in (hiding, coarse)])
    assert both["cells"] == 5
    assert [each["certain"] for each in both["known_rows"]] == [3, 2, 5]


@pytest.fixture
def files(tmp_path):
    write(
        tmp_path / "table.csv", ["g", "s", "count"], [(*k, n) for k, n in Counter(PEOPLE).items()]
    )
    (tmp_path / "method.toml").write_text(toml([EXACT]), encoding="utf-8")
    table = pa.table({"s": [s for _, s in PEOPLE], "g": [g for g, _ in PEOPLE], "id": range(5)})
    pq.write_table(table, tmp_path / "people.parquet")
    return tmp_path


def words(folder, *more):
    return (
        *("risk", folder / "table.csv", "--data", folder / "people.parquet"),
        *("--made-by", folder / "method.toml", *more),
    )


def test_the_command_says_that_exact_counts_show_everyone_and_that_it_is_private(files):
    text = answered(*words(files))
    private, first = text.splitlines()[:2]
    assert private.startswith("PRIVATE")
    assert "exact counts by s" in first
    assert "each of the 5 people" in first
    document = json.loads(answered(*words(files, "--json", "--out", files / "risk.json")))
    assert document["private"].startswith("PRIVATE")
    assert document["exact"] == [str(files / "table.csv")]
    assert document["known_rows"][0]["certain"] == document["cells"] == 5
    assert document["known_rows"][0]["power"]["0.01"]["upper"] == 1
    assert json.loads((files / "risk.json").read_text("utf-8")) == document
    assert os.stat(files / "risk.json").st_mode & 0o777 == 0o600


def refused(folder, *more):
    return json.loads(answered(*words(folder, "--json", *more), code=2))["error"]


def test_the_answer_is_not_written_into_a_release(files):
    (files / "release" / "tables").mkdir(parents=True)
    (files / "release" / "receipt.json").write_text("{}")
    assert "has a receipt.json" in refused(files, "--out", files / "release" / "risk.json")
    assert "has a receipt.json" in refused(files, "--out", files / "release/tables/risk.json")
    (files / "old.json").write_text("{}")
    assert "already exists" in refused(files, "--out", files / "release" / ".." / "old.json")


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"rounds": 5}, "there is no such field; did you mean 'round'?"),
        ({"round": 1}, "table.0.round = 1: Input should be greater than or equal to 2"),
        ({"round": 5, "suppress": 5}, "one of round, suppress, and swap"),
        ({"random": True}, "random needs round"),
        ({"total": "t"}, "must name columns of by: g, s"),
        ({"by": ["g", "g", "s"]}, "must name each column once"),
        ({"swap": "g"}, "swap needs a rate up to 1"),
        ({"swap": "g", "rate": 2}, "swap needs a rate up to 1"),
        ({"swap": "g", "rate": "1/2", "total": "s"}, "takes no total"),
        ({"map": {"s": {"P": ["x", "y"]}}}, "has no category for 'z'; add it to one"),
        ({"map": {"s": {"P": ["x", "y"], "Q": ["y", "z"]}}}, "lists a value twice"),
        ({"count": "n"}, "has the columns ['g', 's', 'count']: must have ['g', 's', 'n']"),
        ({"by": ["g"]}, "no table counts by 's'; there is 'g'"),
        ({"total": "s", "total_label": "x"}, "'x' is a category, too"),
        ({"round": 5}, "4 numbers differ"),
        ({"round": 3, "random": True}, "4 numbers differ"),
        ({"swap": "g", "rate": 1}, ""),
    ],
)
def test_a_wrong_method_is_refused_in_words(method, message, files):
    (files / "method.toml").write_text(toml([EXACT | method]), encoding="utf-8")
    if message:
        assert message in refused(files)
    else:
        assert answered(*words(files))


HEAD = ["g", "s", "count"]
LINES = [["a", "x", "2"], ["a", "y", "1"], ["b", "y", "1"], ["b", "z", "1"]]


@pytest.mark.parametrize(
    ("head", "lines", "message"),
    [
        (HEAD, [["a", "x", "3"], *LINES[1:]], "is not the table that"),
        (HEAD, [["a", "x", "3"], ["a", "y", "2"], *LINES[2:]], "2 numbers differ"),
        (HEAD, LINES[:3], "1 numbers differ"),
        (HEAD, [*LINES, ["ü", "x", "0"]], ""),
        (HEAD, [["a", "x", "2.0"], *LINES[1:]], ""),
        (HEAD, [["a", "x", "2.5"], *LINES[1:]], "2.5']: must have a whole number"),
        (HEAD, [["a", "x", "-2"], *LINES[1:]], "must have a whole number from 0"),
        (HEAD, [["a", "x", "1e1"], *LINES[1:]], "'1e1']: must have a whole number"),
        (HEAD, [["a", "x", ""], *LINES[1:]], "1 numbers differ"),
        (HEAD, [*LINES, LINES[0]], "keys that no other line has"),
        (
            HEAD,
            [*LINES, ["total", "x", "2"]],
            "'total' in ['total', 'x'] is no category; there are 'a', 'b', 'ü'",
        ),
        (HEAD, [["a", "x"], *LINES[1:]], "each once and in each line"),
        (HEAD, [["a", "x", "2", "2"], *LINES[1:]], "each once and in each line"),
        ([*HEAD, "share"], [[*line, "0.4"] for line in LINES], "leave out others"),
        (["g", "s", "count", "count"], [[*line, line[2]] for line in LINES], "leave out others"),
        (HEAD, [], "4 numbers differ"),
        ([], [], "has the columns []: must have"),
    ],
)
def test_a_table_is_compared_cell_by_cell(head, lines, message, files):
    write(files / "table.csv", head, lines)
    if message:
        assert message in refused(files)
    else:
        assert answered(*words(files))


def test_rows_without_a_value_need_a_name_for_it(tmp_path):
    rows = [("a", ""), ("a", "x"), ("b", "x")]
    with pytest.raises(ValueError, match=r"1 rows of the data have a 's' that neither"):
        asked(tmp_path, rows, [EXACT], [publish(rows, EXACT)])
    method = {"by": ["g", "s"], "map": {"s": {"P": ["x", "y", "z", ""]}}}
    paths = [write(tmp_path / "t.csv", HEAD, [["a", "P", 2], ["b", "P", 1]])]
    text = toml([method], {"g": ["a", "b"]})
    (tmp_path / "named.toml").write_text(text, encoding="utf-8")
    risk = plain_tables_risk(paths, str(tmp_path / "people.csv"), tmp_path / "named.toml")
    assert (risk["people"], risk["exact"], risk["known_rows"][0]["certain"]) == (3, [], 0)


def test_numbers_days_and_truths_are_read_as_a_table_writes_them(tmp_path):
    day = datetime.date(2026, 11, 30)
    columns = {"age": [3.0, None, 3.0], "day": [day] * 3, "s": [True, False, True], "n": [7, 7, 8]}
    pq.write_table(pa.table(columns), tmp_path / "people.parquet")
    lines = [["3", "2026-11-30", "true", 7, 1], ["", "2026-11-30", "false", 7, 1]]
    lines += [["3", "2026-11-30", "true", 8, 1]]
    table = write(tmp_path / "t.csv", ["age", "day", "s", "n", "count"], lines)
    text = 'attribute = "s"\n[[table]]\nby = ["age", "day", "s", "n"]'
    (tmp_path / "method.toml").write_text(text, encoding="utf-8")
    risk = plain_tables_risk([table], str(tmp_path / "people.parquet"), tmp_path / "method.toml")
    assert risk["known_rows"][0]["certain"] == risk["people"] == 3


def test_what_is_too_large_is_refused_or_not_computed(tmp_path):
    rows = [("a", "x"), ("b", "y")] * 7
    method = {"by": ["g", "s"], "swap": "s", "rate": "0.1"}
    known = asked(tmp_path, rows, [method], [publish(rows, EXACT)])["known_rows"][0]
    assert (known["exchange"], known["not_enumerated"]) == (None, 14)
    large = {"g": [f"{k}" for k in range(500)], "s": [f"{k}" for k in range(500)]}
    with pytest.raises(ValueError, match=r"g, s has 250,000 cells: must be at most 200,000"):
        asked(tmp_path, [], [EXACT], [{}], large)
    long = {"g": ["a"], "s": [f"{k}" for k in range(1001)]}
    people = [*product(long["g"], long["s"])]
    with pytest.raises(ValueError, match="1,001 cells have people, and 's' has 1,001 values"):
        asked(tmp_path, people, [EXACT], [Counter(people)], long)
    many = {"g": [f"{k}" for k in range(300)], "s": ["x", "y"]}
    people = [(f"{k}", s) for k in range(300) for s in "x" * (k % 20 + 1) + "y" * (k // 20 + 1)]
    method = EXACT | {"round": 97, "random": True}
    power = asked(tmp_path, people, [method], [{}], many)["known_rows"][0]["power"]
    # The second count rises from 1 to 2, and the first one falls from 1 to 0.
    want = best_power({0: 1 - F(1, 97), 1: F(1, 97)}, {0: F(1)}, "0.05")
    assert want < power["0.05"]["upper"] < 0.08
    wide = {"g": [f"{k}" for k in range(40)], "s": [f"{k}" for k in range(15)]}
    people = [*product(wide["g"], wide["s"])]
    halves = {"s": {"P": wide["s"][:7], "Q": wide["s"][7:]}}
    methods = [{"by": ["g", "s"], "map": halves}, {"by": ["s"]}]
    counts = [Counter((g, category(methods[0], "s", s)) for g, s in people)]
    counts += [Counter((s,) for _, s in people)]
    risk = asked(tmp_path, people, methods, counts, wide)
    assert (risk["cells"], risk["cells_not_computed"]) == (0, 600)
    assert not any(each["exact"] for each in risk["ranges"])
