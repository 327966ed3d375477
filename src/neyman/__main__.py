"""Run the command line with ``python -m neyman``."""

from neyman.cli.start import main

main()
