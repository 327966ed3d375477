"""What people see: the report page, the command line, the demo.

Public: `run` (publish: a release with its page), `page` (report), `main` (cli).
"""
