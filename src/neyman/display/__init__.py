"""What people read: the page of a release, figures, and the explorer."""
