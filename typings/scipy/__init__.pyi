"""The types of the functions of SciPy that Neyman calls: SciPy has none of its own."""
