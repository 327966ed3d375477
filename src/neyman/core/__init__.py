"""What an observer can learn: losses, their sums, and the trade-off curve that answers for them.

Public: `Loss` and its kinds (loss, discrete, amplify, bare), `Composition` (their sum, with its
engine), `Tradeoff` with every question, the families by name, and Blackwell's order.
"""
