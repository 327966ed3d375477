"""``python -m neyman`` is the command line."""

from neyman.cli.start import main

main()
