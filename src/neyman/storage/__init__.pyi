"""The names of this package that the layers above, users, and tests import."""

from neyman.storage.durable import make_folder as make_folder
from neyman.storage.durable import replace_file as replace_file
from neyman.storage.locks import lock as lock
from neyman.storage.locks import names as names
from neyman.storage.reading import open_file as open_file
from neyman.storage.reading import read_file as read_file
