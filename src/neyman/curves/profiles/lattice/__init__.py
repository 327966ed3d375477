"""Compute privacy profiles of losses on a grid."""
