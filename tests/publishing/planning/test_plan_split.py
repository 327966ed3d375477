"""Shares chosen for the least error: closed form, brute force on dense matrices, exact numbers."""

import math
import tomllib
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize

from mixed_plan import MIXED
from neyman.publishing import Plan, best_split, rewritten

PLAN = Plan.from_dict(tomllib.loads(MIXED))


def of(*queries, hierarchy=None, **more):
    """A plan of counts by race and sex; every column has a key for what is unknown."""
    columns = {
        "race": {"keys": list("abc"), "unknown": "c"},
        "sex": {"keys": ["f", "m"], "unknown": "m"},
    }
    return Plan.from_dict(
        {
            "schema": 2,
            "name": "p",
            "dataset": "d@1",
            "table": "t",
            "unit": {"protects": "person", "neighboring": "add-remove"},
            "columns": columns,
            "budget": {"zcdp": 1},
            "query": [
                {"name": name, "measure": "count", "by": by, "share": f"1/{len(queries)}", **own}
                for name, by, own in queries
            ],
            **({"hierarchy": hierarchy} if hierarchy else {}),
            **more,
        }
    )


@pytest.mark.parametrize("weights", [{}, {"race": 4}, {"total": "9", "spread": 0.25}])
def test_apart_shares_go_with_the_root_of_the_weight(weights):
    """Each share is in proportion to sqrt(weight * parts), to a thousandth, and they sum to 1."""
    split = best_split(PLAN, weights, consistent=False)
    many = {"mean age": 2, "spread": 3}
    roots = [
        math.sqrt(float(Fraction(str(weights.get(p.query, 1)))) * many.get(p.query, 1))
        for p in split.parts
    ]
    assert sum(p.share for p in split.parts) == 1
    for part, root in zip(split.parts, roots, strict=True):
        assert float(part.share) == pytest.approx(root / sum(roots), abs=1.01e-3)
    assert split.value <= min(split.before, split.equal)
    assert split.value == pytest.approx(sum(roots) ** 2 / 2, rel=1e-4)
    assert split.gap < 1e-4


def dense(shares, tables, weights):
    """The weighed mean variances after least squares of tables of a 3 x 2 table, by matrices."""
    matrices = []
    for by in tables:
        race = np.eye(3) if "race" in by else np.ones((1, 3))
        sex = np.eye(2) if "sex" in by else np.ones((1, 2))
        matrices.append(np.kron(race, sex))
    design = np.vstack([m * math.sqrt(2 * s) for m, s in zip(matrices, shares, strict=True)])
    covariance = np.linalg.pinv(design.T @ design)
    return sum(
        w * np.mean(np.einsum("ij,jk,ik->i", m, covariance, m))
        for w, m in zip(weights, matrices, strict=True)
    )


@pytest.mark.parametrize("weights", [(1, 1, 1), (10, 1, 1), (1, 1, 20)])
def test_brute_force_finds_no_better_shares(weights):
    tables = [("race",), ("sex",), ("race", "sex")]
    names = ["r", "s", "both"]
    plan = of(
        *((n, list(by), {}) for n, by in zip(names, tables, strict=True)),
        consistency={"method": "least-squares"},
    )
    split = best_split(plan, dict(zip(names, weights, strict=True)))
    own = [float(p.share) for p in split.parts]
    assert split.consistent
    assert split.value == pytest.approx(dense(own, tables, weights), rel=1e-6)
    assert split.equal == pytest.approx(dense([1 / 3] * 3, tables, weights), rel=1e-6)

    def value(logs):
        shares = np.exp(logs)
        return dense(shares / shares.sum(), tables, weights)

    best = min(
        minimize(value, np.random.default_rng(seed).normal(0, 1, 3), method="Nelder-Mead").fun
        for seed in range(3)
    )
    assert split.value <= best * (1 + 1e-3)
    assert split.value / (1 + split.gap) <= best * (1 + 1e-4)


def test_two_levels_of_an_even_tree_as_computed_by_hand():
    n = 6
    places = {
        "p": {
            "levels": ["state", "county"],
            "keys": [["s", f"c{i}"] for i in range(n)],
            "unknown": "c0",
        }
    }
    plan = of(
        ("total", [], {"at": ["state", "county"]}),
        hierarchy=places,
        consistency={"method": "least-squares"},
    )
    split = best_split(plan, {"total.state": 3})

    def value(state, county):
        top = 1 / (2 * state + 2 * county / n)  # the state's own count, and the counties' sum
        below = (1 / (2 * county)) * (1 - 1 / n) + top / n**2
        return 3 * top + below

    grid = [value(s / 2000, 1 - s / 2000) for s in range(1, 2000)]
    assert split.value <= min(grid) * (1 + 1e-3)
    shares = {p.level: float(p.share) for p in split.parts}
    assert split.value == pytest.approx(value(shares["state"], shares["county"]), rel=1e-6)


def test_a_plan_is_rewritten_with_its_comments():
    split = best_split(PLAN, {"total.county": 5})
    text = rewritten(MIXED, split)
    product = Plan.from_dict(tomllib.loads(text))
    got = {}
    for entry in product.entries():
        got[entry.query, entry.level] = got.get((entry.query, entry.level), 0) + entry.share
    assert got == {(p.query, p.level): p.share for p in split.parts}
    assert "# a comment that stays" in text
    ours = ("share", "split", "weight")
    selection = [line for line in MIXED.splitlines() if not line.startswith(ours)]
    new = [line for line in text.splitlines() if not line.startswith(ours)]
    assert new == selection
    (quarter,) = [line for line in text.splitlines() if line.endswith("# a quarter")]
    assert quarter.startswith("share = ")
    weights = {(q.name, level): weight for q in product.queries for level, weight in q.weight}
    assert weights == {(p.query, p.level): p.weight for p in split.parts}
    assert weights["total", "county"] == 5
    assert rewritten(text, best_split(product)) == text


@pytest.mark.parametrize(("old", "new"), [
    ('split = { state = "1/2", county = "1/2" }', "[query.split]\nstate = 0.5\ncounty = 0.5"),
    ('split = { state = "1/2", county = "1/2" }', "split.state = 0.5\nsplit.county = 0.5"),
    ('name = "total"', '"name" = "total"'),
    ('share = "1/4"                       # a quarter', '"share" = "1/4"'),
])  # fmt: skip
def test_a_plan_that_is_written_otherwise_is_rewritten_too(old, new):
    text = MIXED.replace(old, new)
    assert Plan.from_dict(tomllib.loads(text)) == PLAN
    split = best_split(PLAN, {"total.county": 5})
    assert tomllib.loads(rewritten(text, split)) == tomllib.loads(rewritten(MIXED, split))


def test_without_queries_nothing_is_written():
    with pytest.raises(ValueError, match="not in the text"):
        rewritten("query = []", best_split(PLAN))


def weighed(text=MIXED, **weights):
    """The plan of a text, its queries with these weights (names without blanks)."""
    said = tomllib.loads(text)
    for query in said["query"]:
        if query["name"] in weights:
            query["weight"] = weights[query["name"]]
    return Plan.from_dict(said)


def test_a_plan_s_own_weights_count_where_none_are_given():
    plan = weighed(total={"county": 9}, race=4)
    assert best_split(plan) == best_split(PLAN, {"total.county": 9, "race": 4})
    given = {p.query + "." + p.level: p.weight for p in best_split(plan, {"race": 2}).parts}
    assert given["race.county"] == 2
    assert given["total.county"] == 9
    assert given["total.state"] == given["pay.state"] == 1


def apart(**shares):
    """A plan of tables by race, each with its share and weight, not made to add up."""
    return of(
        *(
            (name, ["race"], {"share": share, "weight": weight})
            for name, (share, weight) in shares.items()
        )
    )


@pytest.mark.parametrize(("plan", "said"), [
    # Sum of weight / share: 9 / .75 + 1 / .25 = 16 is the least, and 20 that of halves.
    (apart(a=("3/4", 9), b=("1/4", 1)), ["is 20% less than with equal shares", "No other"]),
    # Halves give 20, of which (20 - 16) / 20 can be saved.
    (apart(a=("1/2", 9), b=("1/2", 1)), ["that of equal shares, which these are", "by 20%"]),
    # 9 / .25 + 1 / .75 = 37.33, 1.8667 times 20, of which 57.1% can be saved.
    (apart(a=("1/4", 9), b=("3/4", 1)), ["is 87% more than with equal shares", "by 58%"]),
    # 9 / .1 + 1 / .9 = 91.11, 4.5556 times 20.
    (apart(a=("1/10", 9), b=("9/10", 1)), ["is 4.6 times that of equal shares", "by 83%"]),
    (apart(a=("501/1000", 1), b=("499/1000", 1)), ["to less than 1%", "No other"]),
    (apart(a=("1", 7)), ["one table, so no other share is possible"]),
])  # fmt: skip
def test_how_good_a_plan_s_shares_are_is_said(plan, said):
    """Against equal shares and the best ones, as computed by hand, rounded against the plan's."""
    answer = " ".join(best_split(plan).standing())
    for words in said:
        assert words in answer
    assert ("neyman plan split" in answer) == ("Other shares would lower it" in answer)


def test_shares_chosen_for_the_weights_are_found_good():
    text = rewritten(MIXED, best_split(PLAN, {"total.county": 9, "race": 4}))
    product = Plan.from_dict(tomllib.loads(text))
    split = best_split(product)
    assert split.value == split.before
    assert [p.share for p in split.parts] == [p.before for p in split.parts]
    assert "No other shares" in split.standing()[-1]
    other = Plan.from_dict(tomllib.loads(text.replace("weight = 4", "weight = 4000")))
    assert "Other shares would lower it by" in best_split(other).standing()[-1]


def test_a_search_with_less_work_claims_less():
    plan = weighed(total={"county": 9}, race=40)
    best = best_split(plan)
    least = best.value / (1 + best.gap)
    none, few = best_split(plan, work=0), best_split(plan, work=2 * 15 * 30_000)
    assert none.gap == math.inf
    assert none.to_dict()["gap"] is None
    assert "plan split finds" in none.standing()[-1]
    assert 0 < few.gap < math.inf
    for result in (none, few):
        assert result.value / (1 + result.gap) <= best.value * (1 + 1e-6)
        assert best.value <= result.value * (1 + 1e-3)
        assert least <= result.value


def test_what_rounding_shares_costs_is_not_called_a_rise():
    said = tomllib.loads(MIXED)
    said["query"] = [said["query"][0] | {"name": name, "share": "1/3"} for name in "abc"]
    for part in said["query"]:
        part |= {"at": ["state"]}
        part.pop("split")
    said.pop("consistency")
    lines = best_split(Plan.from_dict(said)).explained()
    assert "Compared with equal shares, the weighted squared error is the same." in lines


@pytest.mark.parametrize(("weights", "words"), [
    ({"rase": 1}, "did you mean 'race'"),
    ({"race": 0}, "above 0"),
    ({"race": 1e300}, "1e60"),
    ({"race": 1, "race.county": 2}, "a weight already"),
])  # fmt: skip
def test_weights_of_nothing_are_refused(weights, words):
    with pytest.raises(ValueError, match=words):
        best_split(PLAN, weights)


LOADS = {
    "add-remove": [(1, 1, 0), (1, 0, 1)],
    # A person who leaves one part and enters the other moves one cell of each, and not two.
    "replace-one": [(1, 1, 0), (1, 0, 1), (1, 1, 0.5)],
}


def parts_by_age(relation, shares, **more):
    tables = {"all": ["sex"], "young": [], "old": ["sex"]}
    filters = {"young": "n < 18", "old": "n >= 18"}
    return of(
        *((n, by, {"where": filters.get(n), "share": shares[n]}) for n, by in tables.items()),
        unit={"protects": "person", "neighboring": relation},
        columns={"sex": {"keys": ["f", "m"]}, "n": {"type": "whole"}}, disjoint=True, **more,
    )  # fmt: skip


@pytest.mark.parametrize("relation", LOADS)
@pytest.mark.parametrize("weights", [(1, 1, 1), (1, 1, 30), (20, 1, 4)])
def test_no_grid_has_better_shares_of_disjoint_queries(relation, weights):
    names = ["all", "young", "old"]
    third = dict.fromkeys(names, "1/3")
    split = best_split(parts_by_age(relation, third), dict(zip(names, weights, strict=True)))

    def value(shares):
        worst = max(sum(map(math.prod, zip(case, shares, strict=True))) for case in LOADS[relation])
        return sum(w * worst / (2 * s) for w, s in zip(weights, shares, strict=True))

    grid = [(i, j, 120 - i - j) for i in range(1, 119) for j in range(1, 120 - i)]
    best = min(map(value, grid))
    own = [part.share for part in split.parts]
    assert sum(own) == 1
    assert [part.before for part in split.parts] == [Fraction(1, 3)] * 3
    assert split.value == pytest.approx(value(own), rel=1e-9)
    assert split.before == pytest.approx(value([1, 1, 1]), rel=1e-9)
    assert split.value <= best * (1 + 1e-3)
    assert split.value / (1 + split.gap) <= best
    assert split.gap < 1e-3
    plan = parts_by_age(relation, {part.query: str(part.share) for part in split.parts})
    taken = [float(entry.share) for entry in plan.entries()]
    assert split.value == pytest.approx(
        sum(w / (2 * s) for w, s in zip(weights, taken, strict=True)), rel=1e-9
    )
    assert "of the declared shares (before: 33.3%)" in split.explained()[1]


@pytest.mark.parametrize("relation", LOADS)
def test_no_grid_has_better_shares_beside_what_is_unspent(relation):
    budget, before = {"zcdp": 1, "unspent": "2/5"}, dict.fromkeys(["all", "young", "old"], "1/5")
    split = best_split(parts_by_age(relation, before, budget=budget))

    def value(shares):
        worst = max(sum(map(math.prod, zip(case, shares, strict=True))) for case in LOADS[relation])
        return sum((worst + 0.4) / (2 * s) for s in shares)

    grid = [(0.005 * i, 0.005 * j) for i in range(1, 119) for j in range(1, 120 - i)]
    own = [part.share for part in split.parts]
    assert sum(own) == Fraction(3, 5)
    assert split.value == pytest.approx(value([*map(float, own)]), rel=1e-9)
    assert split.before == pytest.approx(value([0.2] * 3), rel=1e-9)
    assert split.value <= min(value([a, b, 0.6 - a - b]) for a, b in grid) * (1 + 1e-3)
    plan = parts_by_age(
        relation, {part.query: str(part.share) for part in split.parts}, budget=budget
    )
    taken = [float(entry.share) for entry in plan.entries()]
    assert split.value == pytest.approx(sum(1 / (2 * s) for s in taken), rel=1e-9)


def test_a_plan_is_rewritten_with_what_it_leaves():
    query = '[[query]]\nname = "{}"\nmeasure = "count"\nby = ["race"]\nat = {}\nshare = "2/5"\n'
    text = MIXED[: MIXED.index("[consistency]")].replace("[budget]", '[budget]\nunspent = "1/5"')
    text += query.format("low", ["county"]) + query.format("high", ["state"])
    split = best_split(Plan.from_dict(tomllib.loads(text)), {"low": 9})
    assert [part.share for part in split.parts] == [Fraction(3, 5), Fraction(1, 5)]
    assert [part.before for part in split.parts] == [Fraction(2, 5)] * 2
    product = Plan.from_dict(tomllib.loads(rewritten(text, split)))
    assert [query.share for query in product.queries] == [Fraction(3, 5), Fraction(1, 5)]
    assert "low.county gets 60.0% of the budget (before: 40.0%)" in split.explained()[1]


def test_consistent_disjoint_queries_get_better_shares_than_a_general_optimizer_finds():
    plan = of(
        columns={
            "race": {"keys": list("abc"), "unknown": "c"},
            "sex": {"keys": ["f", "m"], "unknown": "m"}, "n": {"type": "whole"},
        },
        disjoint=True, consistency={"method": "least-squares"},
        query=[
            {"name": "r", "measure": "count", "by": ["race"], "share": "1/4"},
            {"name": "both", "measure": "count", "by": ["race", "sex"], "share": "1/4"},
            {"name": "young", "measure": "count", "where": "n < 18", "share": "1/4"},
            {"name": "old", "measure": "count", "where": "n >= 18", "share": "1/4"},
        ],
    )  # fmt: skip
    split = best_split(plan)
    assert split.consistent

    def value(logs):
        r, both, young, old = np.exp(logs)
        worst = r + both + max(young, old)
        shares = np.array([r, both]) / worst
        apart = (1 / young + 1 / old) * worst / 2
        return dense(shares, [("race",), ("race", "sex")], (1, 1)) + apart

    best = min(
        minimize(value, np.random.default_rng(seed).normal(0, 1, 4), method="Nelder-Mead").fun
        for seed in range(3)
    )
    assert split.value == pytest.approx(value(np.log([float(p.share) for p in split.parts])))
    assert split.value <= best * (1 + 1e-3)
    assert split.value / (1 + split.gap) <= best * (1 + 1e-4)
