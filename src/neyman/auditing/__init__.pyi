"""The names of this package that the layers above, users, and tests import."""

from neyman.auditing.evidence import ManyRuns as ManyRuns
from neyman.auditing.releases.release_path import audit_plan as audit_plan
