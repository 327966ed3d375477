"""Audits: what an attack has shown about a mechanism, with a stated confidence."""
