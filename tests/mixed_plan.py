"""A plan with every kind of table, small enough for whole matrices."""

MIXED = """\
schema = 2
name = "mixed"                      # a comment that stays
dataset = "d@1"
table = "t"
[unit]
protects = "person"
neighboring = "replace-one"
[columns.race]
keys = ["a", "b", "c"]
unknown = "c"
[columns.age]
integer = true
unknown = 0
[columns.pay]
decimals = 2
unknown = 0
[hierarchy.place]
levels = ["state", "county"]
keys = [["A", "A1"], ["A", "A2"], ["B", "B1"], ["B", "B2"], ["B", "B3"]]
unknown = "B3"
[budget]
zcdp = "1/10"
[consistency]
method = "least-squares"

[[query]]
name = "total"
measure = "count"
at = ["state", "county"]
share = "1/4"                       # a quarter
split = { state = "1/2", county = "1/2" }

[[query]]
name = "race"
measure = "count"
by = ["race"]
at = ["county"]
share = "1/4"

[[query]]
name = "mean age"
measure = "mean"
column = "age"
clip = [-20, 100]
share = "1/8"

[[query]]
name = "spread"
measure = "variance"
column = "pay"
clip = [0, 500]
share = "1/8"

[[query]]
name = "pay"
measure = "sum"
column = "pay"
clip = [0, 500]
at = ["state"]
share = "1/8"

[[query]]
name = "ages"
measure = "quantiles"
column = "age"
edges = [0, 20, 40, 60, 80, 100]
quantiles = [0.25, 0.5]
share = "1/8"
"""
