"""The names of this package that the layers above, users, and tests import."""

from neyman.auditing.evidence import ManyRuns as ManyRuns
from neyman.auditing.plain_tables.table_risk import plain_tables_risk as plain_tables_risk
from neyman.auditing.releases.release_path import audit_plan as audit_plan
