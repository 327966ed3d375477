"""Before any data: the error of every table, and the split of the budget."""

from neyman.extras import require

require("plans", "pydantic", "pyarrow", "tomlkit")
