"""Private regression beside another library's, on scikit-learn's data, at equal budget."""
