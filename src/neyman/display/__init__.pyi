"""The names of this package that the layers above, users, and tests import."""

from neyman.display.explorer.server import Explorer as Explorer
from neyman.display.plots.direct_labels import COLORS as COLORS
from neyman.display.plots.direct_labels import draw as draw
from neyman.display.plots.direct_labels import fresh as fresh
from neyman.display.plots.direct_labels import name_lines as name_lines
from neyman.display.report.attribute_sections import belief_sentences as belief_sentences
from neyman.display.report.attribute_sections import power_points as power_points
from neyman.display.report.deployment_record import registry_text as registry_text
from neyman.display.report.receipt_view import totals_sentence as totals_sentence
from neyman.display.report.report import page as page

from .plots import figures as figures
