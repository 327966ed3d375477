"""``python -m neyman`` is the command line."""

from neyman.show.cli import main

main()
