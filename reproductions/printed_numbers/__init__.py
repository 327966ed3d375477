"""Each number that the five texts print, beside ours."""
