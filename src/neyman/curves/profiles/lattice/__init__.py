"""Privacy profiles of losses on a grid."""
