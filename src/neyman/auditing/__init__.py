"""Audit mechanisms: report what an attack has shown, with a stated confidence."""
