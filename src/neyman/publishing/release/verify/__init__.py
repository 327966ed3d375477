"""Verification of a release without the data: every claim is recomputed from the receipt's plan."""

from neyman.publishing.release.verify.verification import Check, verify

__all__ = ["Check", "verify"]
