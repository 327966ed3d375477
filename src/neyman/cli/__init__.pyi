"""The names of this package that the layers above, users, and tests import."""

from neyman.cli.main import app as app
