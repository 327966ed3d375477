"""The names of this package that the layers above, users, and tests import."""

from neyman.display.explorer.server import Explorer as Explorer
from neyman.display.report.deployment_record import registry_text as registry_text
from neyman.display.report.report import page as page

from .plots import figures as figures
