"""Verify a release without the data: recompute every claim from the receipt's plan."""

from neyman.publishing.release.verify.verification import Check, verify

__all__ = ["Check", "verify"]
