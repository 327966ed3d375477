"""A distribution of both engines: the same examples on DuckDB and on Spark."""

from hypothesis import Phase, given, settings
from hypothesis.strategies import tuples

import random_laws


def on_each(*strategies, examples: int = 12):
    """A law for both engines: one example on Spark, where each query takes tenths of a second.

    On DuckDB there are half of ``examples``, at least 3, or 2 in `make test`, the same each time;
    `make fuzz` tries new ones, ten times ``examples``. The test gets the engine, pytest's folders,
    and a value of each strategy.
    """
    many = random_laws.examples(examples, least=2 if random_laws.is_small() else 3)

    def law(test):
        def run(engine, tmp_path_factory):
            few = many if engine == "duckdb" else 2
            tried = 0

            # What fails on Spark is shown as it is: to make it small would take minutes.
            spark = {} if engine == "duckdb" else {"phases": [Phase.generate]}

            @settings(max_examples=few, **spark)
            @given(tuples(*strategies))
            def holds(values):
                nonlocal tried
                tried += 1
                # The first example is the simplest one, often without a row: DuckDB has that.
                if engine == "duckdb" or tried > 1:
                    test(engine, tmp_path_factory, *values)

            holds()

        run.__name__, run.__doc__, run.draws = test.__name__, test.__doc__, many
        return run

    return law
