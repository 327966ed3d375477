"""Ask questions one by one: the second one depends on the answer to the first."""

import pyarrow as pa

import neyman as ny

people = pa.table({"sex": ["f", "m", "m"] * 1000, "age": [20 + i % 50 for i in range(3000)]})
ledger = ny.throwaway(1)  # in earnest: the path of a ledger that the custodian has made
session = ny.Session(
    people,
    ledger=ledger,
    dataset="people@1",
    unit=ny.Unit("person", neighboring="replace-one", rows=1),
    columns={"sex": ny.keys(["f", "m"]), "age": {"integer": True}},
)
by_sex = session.ask(ny.query.count(by="sex"), zcdp="1/1000")
print(by_sex)
larger = max(by_sex.table.to_pylist(), key=lambda row: row["value"])["sex"]
print(session.ask(ny.query.mean("age", clip=(0, 120), where=f"sex == '{larger}'"), zcdp="1/500"))
print(f"Left: {session.left}")
