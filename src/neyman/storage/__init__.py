"""Read files safely, and take locks with limited waits."""
