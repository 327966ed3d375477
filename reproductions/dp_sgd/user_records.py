"""The page on users with several records: ``python -m reproductions.dp_sgd.user_records docs``."""

from __future__ import annotations

from neyman import Gaussian, Mechanism, approximate, calibrate
from reproductions.markdown import Tell, main, table

__all__ = ["crossover", "pages"]

RATE, STEPS, DELTA = 0.01, 1000, 1e-6
EPSILONS, RECORDS = (1, 4, 16), (2, 8, 32)

TEXT = """\
# Account for users with several records

<!-- Written by `python -m reproductions.dp_sgd.user_records docs`. Edit that module. -->

If a user has several records, the guarantee for one record does not cover them. State how many
records a user can have, and how the training loop draws them:

```python
import neyman as ny

# Each record is drawn by itself, and each gradient is clipped.
examples = ny.DPSGD(n=60_000, batch=600, sigma=4, epochs=10, records_per_user=8)
examples.tradeoff().epsilon(delta=1e-6)

# Each user is drawn with all records, and the sum of the gradients is clipped. n counts users.
users = ny.DPSGD(n=7_500, batch=75, sigma=4, epochs=10, records_per_user=8, user_sampling="users")
users.tradeoff().epsilon(delta=1e-6)
```

**Sigma has another unit in each.** With `"examples"` it is the noise divided by the clip of one
record. With `"users"` it is the noise divided by the clip of one user's sum. `repr` states which.

The guarantee is for datasets that differ in all records of one user (add-remove). It holds only if
no user has more records than stated, so the loop must drop the others first, by a rule that reads
this user's records alone. Records need Poisson batches. Users may also be drawn with
`sampling="allocated"`, `"k-of-t"`, or `"bins"`.

In an expression, `mechanism.user(k)` does the same:

```bash
neyman account "(Gaussian(1).subsample(rate=0.01) * 1000).user(8)" --delta 1e-6
```

This answers epsilon {by_record:.2f}. `tradeoff().group(8)` answers {group:.1f}, because it follows
from the curve alone, and also covers 3 records added and 5 removed
([SA-8, SA-9](../certificates/sampling.md)). If noise is far below the sensitivity, the interval of
`user(k)` for several steps may be wide, and `group(k)` is the better bound. In a sum,
`a.user(8) + b` is for a user with up to 8 records in a, and one in b.

## Users with different numbers of records

Declare how many users have each number of records. The guarantee of the run is that of the largest
number, and a table lists the others:

```python
run = ny.DPSGD(n=60_000, batch=600, sigma=4, epochs=10, records_per_user={{1: 20_000, 8: 5_000}})
for row in run.user_guarantees(delta=1e-6):
    print(row.records, row.users, row.epsilon)
```

**A mean over this table is not a guarantee.** A user with 8 records has the risk of 8 records. The
table is public, so do not compute it from the data without protection.

## Which loop needs less noise

Give both loops the same rate, number of steps, and epsilon. Let C be the clip of one record, and
r k C the clip of one user's sum: r is 1 if all gradients of a user are equal, and 1/sqrt(k) if they
are orthogonal and of norm C. Both loops have the same noise at the **crossover**

r = sigma of "examples" / (k x sigma of "users").

Below it users need less noise, and above it examples do. Rate {rate}, {steps:,} steps,
delta {delta}:

{rows}

- **With strong privacy draw users**, unless their gradients are nearly equal.
- **With weak privacy draw examples**, unless a user has many records with different gradients.
- Where the crossover is below 1/sqrt(k), examples need less noise also for orthogonal gradients.

This compares noise alone. A clip that cuts many sums costs accuracy, too. In the training runs of
Charles and others (2024, arXiv 2407.07737), drawing users is better with strong privacy or a large
compute budget.
"""


def _steps(sigma: float, records: int) -> Mechanism:
    return (Gaussian(sigma).subsample(rate=RATE) * STEPS).user(records)


def crossover(epsilon: float, records: int) -> tuple[float, float, float]:
    """Return sigma of users and of examples at one epsilon, and r at which their noise is equal."""
    target = approximate(epsilon, DELTA)
    users, examples = (
        float(calibrate(lambda sigma, k=k: _steps(sigma, k), target)) for k in (1, records)
    )
    return users, examples, examples / users / records


def pages(tell: Tell = lambda stage, part: None) -> dict[str, str]:
    """Return the page, by the name of its file."""
    rows: list[tuple[str, ...]] = []
    for done, epsilon in enumerate(EPSILONS):
        tell("crossovers", done / len(EPSILONS))
        for records in RECORDS:
            users, examples, equal = crossover(epsilon, records)
            rows.append(
                (
                    str(epsilon),
                    str(records),
                    f"{users:.3f}",
                    f"{examples:.3f}",
                    f"{equal:.3f}",
                    f"{records**-0.5:.3f}",
                )
            )
    head = ("epsilon", "k", "sigma of users", "sigma of examples", "crossover r", "1/sqrt(k)")
    run = _steps(1, 1).tradeoff().group(8)
    text = TEXT.format(
        by_record=_steps(1, 8).tradeoff().epsilon(DELTA).upper,
        group=run.epsilon(DELTA).upper,
        rate=RATE,
        steps=STEPS,
        delta="1e-6",
        rows=table(head, rows, 2),
    )
    tell("done", 1.0)
    return {"howto/user-records.md": text}


if __name__ == "__main__":
    main(pages)
