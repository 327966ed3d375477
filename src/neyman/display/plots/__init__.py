"""Figures: matplotlib axes for talks and papers, and small SVG charts."""
