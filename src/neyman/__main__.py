"""``python -m neyman`` is the command line."""

from neyman.cli.main import main

main()
