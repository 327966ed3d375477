"""Tables that add up: which must, how near to the truth they are, what is said of their error."""

from fractions import Fraction

import numpy as np
import pytest

from neyman.noise import discrete_gaussian
from neyman.publishing import Z90, Plan, PlanError, check_consistency, standard_error
from neyman.publishing.consistency.adjusted_tables import consistent_tables
from neyman.publishing.consistency.tree import PlaceTree
from seeded import Seeded

METHODS = ("least-squares", "nonnegative", "integer")
PLACES = [["north", f"n{i}", f"n{i}{c}"] for i in range(2) for c in "ab"] + [["south", "s0", "s0a"]]


def query(name, share, *, by=(), at=("region", "state", "county"), measure="count", **more):
    by_key = {"name": name, "measure": measure, "by": list(by), "at": list(at), **more}
    return by_key if share is None else {**by_key, "share": share}


def planned(*queries, unknown="other", place_unknown="drop", zcdp="1/8", pay=0, **more):
    sections = {
        "schema": 2,
        "name": "small",
        "dataset": "people@1",
        "table": "people",
        "unit": {"protects": "person", "neighboring": "replace-one"},
        "columns": {
            "race": {"keys": ["white", "black", "other"], "unknown": unknown},
            "sex": {"keys": ["f", "m"], "unknown": "f"},
            "pay": {"integer": True, "unknown": pay},
        },
        "hierarchy": {
            "place": {
                "levels": ["region", "state", "county"],
                "keys": PLACES,
                "unknown": place_unknown,
            }
        },
        "budget": {"zcdp": zcdp},
        "query": list(queries),
    }
    return Plan.from_dict(sections | more)


def people(plan, seed=3, mean=40):
    """True counts by (county, race, sex), and from them the exact table of each entry."""
    cells = np.random.default_rng(seed).poisson(mean, (len(PLACES), 3, 2))
    exact = {}
    for entry in plan.entries():
        asked = plan.query(entry.query)
        table = cells
        if "sex" not in asked.by:
            table = table.sum(axis=2, keepdims=True)
        if "race" not in asked.by:
            table = table.sum(axis=1, keepdims=True)
        if asked.by == ("sex", "race"):
            table = table.transpose(0, 2, 1)
        if entry.level == "all":
            table = table.sum(axis=0)
        else:
            places = len(plan.hierarchy.paths(entry.level))
            summed = np.zeros((places, *table.shape[1:]), dtype=np.int64)
            np.add.at(summed, plan.hierarchy.codes(entry.level), table)
            table = summed
        exact[entry.query, entry.level, entry.measure] = table.ravel()
    return exact


def released(plan, exact, bits):
    """The noisy tables, as a release has them."""
    noisy = {}
    for entry, sigma_squared in plan.calibrated():
        key = (entry.query, entry.level, entry.measure)
        noise = discrete_gaussian(sigma_squared, entry.cells, bits) if sigma_squared else 0
        noisy[key] = (exact[key] + noise, sigma_squared)
    return noisy


CROSSED = (
    query("total", "1/4"),
    query("race", "1/4", by=["race"]),
    query("both", "1/2", by=["sex", "race"], at=["state", "county"]),
)


def up(plan, values, lower, upper):
    """A table's sums over the places of a level above."""
    summed = np.zeros((len(plan.hierarchy.paths(upper)), *values.shape[1:]))
    np.add.at(summed, plan.hierarchy.parents(lower, upper), values)
    return summed


@pytest.mark.parametrize("method", METHODS)
def test_counties_add_up_to_states_and_margins_to_totals(method):
    """Every sum that can be made two ways is the same both ways: exactly for whole numbers."""
    plan = planned(*CROSSED, zcdp="1/200")
    noisy = released(plan, people(plan, mean=4), Seeded(1))
    product = consistent_tables(plan, noisy, method)
    within = 0 if method == "integer" else 1e-5
    tables = {
        (name, level): table.value.reshape(len(plan.hierarchy.paths(level)), *shape)
        for (name, level), table in product.tables.items()
        for shape in [{"total": (), "race": (3,), "both": (2, 3)}[name]]
    }
    for name in ("total", "race", "both"):
        for upper, lower in (("state", "county"), ("region", "state")):
            if (name, upper) in tables and (name, lower) in tables:
                sums = up(plan, tables[name, lower], lower, upper)
                assert np.abs(sums - tables[name, upper]).max() <= within
    for level in ("region", "state", "county"):
        race = tables["race", level]
        assert np.abs(race.sum(axis=1) - tables["total", level]).max() <= within
        if level != "region":
            assert np.abs(tables["both", level].sum(axis=1) - race).max() <= within
    assert {table.value.dtype.name for table in product.tables.values()} == {
        "int64" if method == "integer" else "float64"
    }
    if method != "least-squares":
        assert min(table.value.min() for table in product.tables.values()) >= 0
        assert min(table.lower.min() for table in product.tables.values()) == 0
        assert 0 < product.residual <= 1e-7
    else:
        assert product.residual == 0  # least squares search nothing
    assert product.families == (tuple(product.tables),)


@pytest.mark.parametrize("method", METHODS)
def test_a_declared_total_is_met_exactly(method):
    """It is an invariant: named as one, with no error, and everything adds up to it."""
    exact = people(planned(*CROSSED))
    total = int(exact["total", "region", "count"].sum())
    places = [["all", *row] for row in PLACES]
    levels = {"place": {"levels": ["nation", "region", "state", "county"], "keys": places}}
    plan = planned(
        query("total", "1/4", at=["nation", "state"], public={"nation": total}),
        query("race", "3/4", by=["race"], at=["county"]),
        zcdp="1/200",
        hierarchy={"place": levels["place"] | {"unknown": places[-1]}},
    )
    noisy = released(plan, people(plan) | {("total", "nation", "count"): total}, Seeded(2))
    noisy["total", "nation", "count"] = (np.array([total]), Fraction(0))
    product = consistent_tables(plan, noisy, method)
    assert product.invariants == (("total", "nation"),)
    nation = product.tables["total", "nation"]
    for column in (nation.value, nation.lower, nation.upper):
        assert column.tolist() == [total]
    assert nation.standard_error.tolist() == [0]
    for table in product.tables.values():
        assert table.value.sum() == pytest.approx(total, rel=1e-9)


def test_standard_errors_and_intervals_are_true_over_many_releases():
    """Mean squared errors over 2,000 releases are the stated variances, and intervals cover 90%.

    A table's mean of squared errors over releases is within 6 of its standard deviations, at most
    sqrt(2 / 2000) of it: a false alarm has probability below 1e-8.
    """
    plan = planned(*CROSSED, zcdp="1/2")
    exact = people(plan)
    bits, runs = Seeded(4), 2_000
    squares, errors, covered = {}, {}, {}
    for _ in range(runs):
        product = consistent_tables(plan, released(plan, exact, bits))
        for (name, level), table in product.tables.items():
            truth = exact[name, level, "count"]
            key = (name, level)
            squares[key] = squares.get(key, 0) + (table.value - truth) ** 2
            errors[key] = errors.get(key, 0) + (table.value - truth)
            inside = (table.lower <= truth) & (truth <= table.upper)
            covered[key] = covered.get(key, 0) + inside.mean()
    for key, square in squares.items():
        variance = product.tables[key].standard_error ** 2
        assert abs((square / runs / variance).mean() - 1) < 6 * (2 / runs) ** 0.5
        # Unbiased: no cell's mean error is 6 standard errors away.
        assert (np.abs(errors[key] / runs) < 6 * (variance / runs) ** 0.5).all()
        assert covered[key] / runs > 0.9 - 6 * (0.09 / runs) ** 0.5


@pytest.mark.parametrize("method", ["least-squares", "integer"])
def test_intervals_cover_where_true_cells_are_small(method):
    """Coverage of at least 90% for the versions that move cells to 0 or to whole numbers too.

    The share covered, over 200 releases, is held to 90% less 6 standard deviations, of which
    a release's share has at most 0.3: a false alarm has probability below 1e-8.
    """
    plan = planned(*CROSSED, zcdp="1/20")
    exact = people(plan, mean=1)
    bits, runs = Seeded(5), 200
    covered = {}
    for _ in range(runs):
        product = consistent_tables(plan, released(plan, exact, bits), method)
        for (name, level), table in product.tables.items():
            truth = exact[name, level, "count"]
            assert ((table.lower <= table.value) & (table.value <= table.upper)).all()
            inside = ((table.lower <= truth) & (truth <= table.upper)).mean()
            covered[name, level] = covered.get((name, level), 0) + inside
    assert min(covered.values()) / runs > 0.9 - 6 * (0.09 / runs) ** 0.5


def test_the_nonnegative_tables_are_never_farther_from_the_truth():
    """In the norm of least squares, release by release, whatever the noise."""
    plan = planned(*CROSSED, zcdp="1/100")
    exact = people(plan, mean=1)
    bits = Seeded(6)
    for _ in range(50):
        noisy = released(plan, exact, bits)
        far = {}
        for method in ("least-squares", "nonnegative"):
            product = consistent_tables(plan, noisy, method)
            far[method] = sum(
                ((table.value - exact[*key, "count"]) ** 2).sum() / float(noisy[*key, "count"][1])
                for key, table in product.tables.items()
            )
        assert far["nonnegative"] <= far["least-squares"] * (1 + 1e-6)


def test_the_total_is_at_least_as_exact_as_from_its_best_level():
    """Its variance is at most that of each table's sum alone."""
    plan = planned(
        query("all", "1/8", at=()),
        *CROSSED[:1],
        query("race", "5/8", by=["race"]),
        place_unknown=["south", "s0", "s0a"],
    )
    product = consistent_tables(plan, released(plan, people(plan), Seeded(7)))
    assert product.families == (tuple(product.tables),)
    own = product.tables["all", "all"].standard_error[0] ** 2
    alone = [float(v) * entry.cells for entry, v in plan.calibrated()]
    assert own < min(alone)


def test_whole_numbers_stay_within_one_of_their_cell_and_keep_sums():
    """The finest table at each level is its nonnegative version rounded up or down."""
    plan = planned(*CROSSED[:2], query("both", "1/2", by=["race", "sex"]), zcdp="1/50")
    noisy = released(plan, people(plan, mean=3), Seeded(8))
    near = consistent_tables(plan, noisy, "nonnegative")
    total = consistent_tables(plan, noisy, "integer")
    for level in ("region", "state", "county"):
        gap = np.abs(total.tables["both", level].value - near.tables["both", level].value)
        assert gap.max() < 1 + 1e-5


# ---- which tables must add up -----------------------------------------------------------------


def test_rows_that_a_column_drops_keep_its_tables_apart():
    """A race table that leaves rows out does not add up to the total, and is not made to."""
    plan = planned(*CROSSED, unknown="drop")
    product = consistent_tables(plan, released(plan, people(plan), Seeded(1)))
    assert product.families == (
        tuple(key for key in product.tables if key[0] == "total"),
        tuple(key for key in product.tables if key[0] != "total"),
    )
    both = product.tables["both", "county"].value.reshape(len(PLACES), 2, 3)
    assert both.sum(axis=1).ravel() == pytest.approx(product.tables["race", "county"].value)


def test_places_that_are_dropped_keep_the_table_of_everything_apart():
    """The table over everything counts rows of unlisted places, the others do not."""
    queries = (query("all", "1/2", at=()), query("total", "1/2"))
    apart = planned(*queries)
    product = consistent_tables(apart, released(apart, people(apart), Seeded(1)))
    assert len(product.families) == 2
    joined = planned(*queries, place_unknown=["south", "s0", "s0a"])
    product = consistent_tables(joined, released(joined, people(joined), Seeded(1)))
    assert len(product.families) == 1


def test_a_declared_total_counts_dropped_rows_so_that_places_need_not_add_up_to_it():
    """It goes with the table of everything; forced on the places it would move each of them."""
    levels = {"levels": ["nation", "state"], "keys": [["all", "n0"], ["all", "n1"]]}

    def free_errors(unknown):
        plan = planned(
            query("total", "1/2", at=["nation", "state"], public={"nation": 1000}),
            query("all", "1/2", at=()),
            hierarchy={"place": levels | {"unknown": unknown}},
        )
        noise = {(e.query, e.level): s for e, s in plan.calibrated()}
        noisy = {
            ("total", "nation", "count"): (np.array([1000]), Fraction(0)),
            ("total", "state", "count"): (np.array([450, 450]), noise["total", "state"]),
            ("all", "all", "count"): (np.array([1003]), noise["all", "all"]),
        }
        return consistent_tables(plan, noisy)

    apart = free_errors("drop")
    assert apart.tables["total", "state"].value.tolist() == [450, 450]
    assert apart.tables["all", "all"].value.tolist() == [1000]
    joined = free_errors(["all", "n1"])
    assert joined.tables["total", "state"].value.tolist() == [500, 500]


def test_a_query_that_keeps_some_rows_only_adds_up_to_itself_alone():
    """Bounds of a query drop rows that other queries count."""
    plan = planned(
        query("total", "1/2"),
        query("kept", "1/2", by=["race"], groups=1, rows_per_group=1),
        unit={"protects": "person", "neighboring": "add-remove", "rows": 3, "id": "id"},
    )
    product = consistent_tables(plan, released(plan, people(plan), Seeded(1)))
    assert [{name for name, _ in family} for family in product.families] == [{"total"}, {"kept"}]


def test_means_take_no_part_and_sums_add_up_among_themselves():
    """Each table that is left out says why; sums with one clip are a family, counts another."""
    plan = planned(
        query("total", "1/4"),
        query("pay", "1/4", measure="sum", column="pay", clip=[-5, 9]),
        query("pay-race", "1/4", by=["race"], measure="sum", column="pay", clip=[-5, 9]),
        query("average", "1/4", measure="mean", column="pay", clip=[0, 9]),
    )
    exact = {(e.query, e.level, e.measure): np.arange(e.cells) - 7 for e in plan.entries()}
    product = consistent_tables(plan, released(plan, exact, Seeded(1)), "integer")
    assert [{name for name, _ in family} for family in product.families] == [
        {"total"},
        {"pay", "pay-race"},
    ]
    assert set(product.left_out.values()) == {"a table of measure 'mean' does not add up"}
    assert product.tables["pay", "region"].value.min() < 0  # a sum of both signs may be negative
    assert product.tables["total", "region"].value.min() >= 0


def test_a_histogram_adds_up_to_the_count_if_no_row_is_dropped():
    """If 0 replaces a missing number, every row is in a bin, as it has a key."""
    queries = [
        query("total", "1/2"),
        query("pay", "1/2", at=["county"], measure="histogram", column="pay", edges=[0, 5, 9, 20]),
    ]
    plan = planned(*queries)
    exact = {(e.query, e.level, e.measure): np.full(e.cells, 45 // e.cells) for e in plan.entries()}
    product = consistent_tables(plan, released(plan, exact, Seeded(1)))
    assert product.families == (tuple(product.tables),)
    bins = product.tables["pay", "county"].value.reshape(len(PLACES), 3)
    assert bins.sum(axis=1) == pytest.approx(product.tables["total", "county"].value)
    dropped = planned(*queries, pay="drop")
    product = consistent_tables(dropped, released(dropped, exact, Seeded(1)))
    totals = tuple(("total", level) for level in ("region", "state", "county"))
    assert product.families == (totals, (("pay", "county"),))


def test_a_plan_that_cannot_add_up_is_refused_before_any_data():
    """Whole numbers need one finest table; declared totals must agree; a method must be one."""
    apart = planned(query("race", "1/2", by=["race"]), query("sex", "1/2", by=["sex"]))
    check_consistency(apart, "nonnegative")
    with pytest.raises(PlanError, match=r"'race\.county' and 'sex\.county'"):
        check_consistency(apart, "integer")
    with pytest.raises(PlanError, match="must be one of"):
        check_consistency(apart, "best")
    means = planned(query("average", "1", measure="mean", column="pay", clip=[0, 9]))
    with pytest.raises(PlanError, match="leave the section out"):
        check_consistency(means, "least-squares")
    one = {"place": {"levels": ["nation", "county"], "keys": [["all", "a"]], "unknown": "drop"}}
    twice = planned(
        query("first", None, at=["nation"], public={"nation": 5}),
        query("second", None, at=["nation"], public={"nation": 6}),
        query("race", "1", by=["race"], at=["county"]),
        hierarchy=one,
    )
    with pytest.raises(PlanError, match="must be equal"):
        check_consistency(twice, "least-squares")


def test_values_that_no_double_can_count_are_left_as_they_are():
    """Beyond 2^53 a family says so; the others are made."""
    plan = planned(
        query("total", "1/2"), query("pay", "1/2", measure="sum", column="pay", clip=[0, 9])
    )
    noisy = released(plan, people(plan), Seeded(1))
    huge, sigma_squared = noisy["pay", "state", "sum"]
    noisy["pay", "state", "sum"] = (huge + 2**62, sigma_squared)
    for method in METHODS:
        product = consistent_tables(plan, noisy, method)
        assert {name for name, _ in product.tables} == {"total"}
        assert set(product.left_out) == {("pay", level) for level in ("region", "state", "county")}
        assert "more than doubles can count" in product.left_out["pay", "state"]


@pytest.mark.parametrize("zcdp", ["1e-14", "1e4"])
def test_the_least_and_the_most_noise_that_a_plan_can_have(zcdp):
    """Noise of many millions, and noise that is never seen: the tables add up all the same."""
    plan = planned(*CROSSED, zcdp=zcdp)
    exact = people(plan)
    product = consistent_tables(plan, released(plan, exact, Seeded(1)), "integer")
    county, state = (product.tables["total", level] for level in ("county", "state"))
    assert (up(plan, county.value, "county", "state") == state.value).all()
    for key, table in product.tables.items():
        truth = exact[*key, "count"]
        assert (table.standard_error > 0).all()
        # Beyond 8 standard errors, and the roundings: probability below 1e-12.
        assert (
            np.abs(np.maximum(table.value, table.lower) - truth) <= 8 * table.standard_error + 3
        ).all()


def test_the_same_tables_give_the_same_bytes():
    """Whatever order they come in: anyone can make them again from what is published."""
    plan = planned(*CROSSED, zcdp="1/100")
    noisy = released(plan, people(plan), Seeded(9))
    backwards = dict(reversed(noisy.items()))
    for method in METHODS:
        one, two = (consistent_tables(plan, tables, method) for tables in (noisy, backwards))
        assert list(one.tables) == list(two.tables)
        for key, table in one.tables.items():
            for name in ("value", "standard_error", "lower", "upper"):
                first, second = getattr(table, name), getattr(two.tables[key], name)
                assert first.tobytes() == second.tobytes()


def test_a_table_alone_stays_as_it_is():
    """A single table without levels is its own least squares."""
    plan = planned(query("one", "1", by=["race"], at=()))
    noisy = released(plan, people(plan), Seeded(1))
    product = consistent_tables(plan, noisy)
    values, sigma_squared = noisy["one", "all", "count"]
    assert product.tables["one", "all"].value == pytest.approx(values, rel=1e-14)
    assert product.tables["one", "all"].standard_error == pytest.approx(
        float(sigma_squared) ** 0.5, rel=1e-6
    )


@pytest.mark.parametrize("wide", [0.9, 0.3, 0.05])
@pytest.mark.parametrize("narrow", [0.15, 0.12, 0.05])
@pytest.mark.parametrize("children", [1, 2, 3])
def test_intervals_cover_where_noise_is_hardly_ever_seen(children, narrow, wide):
    """By every outcome of the noise, exactly: 90 of 100, though it is nowhere near normal."""
    variances = [standard_error(Fraction(s).limit_denominator(1000)) ** 2 for s in (narrow, wide)]
    tree = PlaceTree([np.zeros(children, dtype=np.int64)], variances)
    k = np.arange(-4, 5)
    laws = [np.exp(-k * k / (2 * s)) for s in (narrow, *[wide] * children)]
    chance, draws = np.ones(1), np.zeros((0, 1))
    for law in laws:
        chance = np.outer(chance, law / law.sum()).ravel()
        draws = np.vstack([np.repeat(draws, len(k), axis=1), np.tile(k, draws.shape[1])])
    fitted = tree.fit([draws[:1], draws[1:]])
    for values, after in zip(fitted, tree.after, strict=True):
        half = Z90 * np.sqrt(after)[:, None] + 0.5 + 1e-9
        covered = (np.abs(values) <= half) @ chance
        assert covered.min() >= 0.9
