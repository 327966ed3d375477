"""Logistic regression by noisy cyclic gradient descent: accuracy and guarantee over its epochs.

It needs scikit-learn, whose handwritten digits it learns to tell apart (even or odd).
Run it: python examples/logistic.py
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the root of the repository

from reproductions.dp_sgd import logistic_regression as logistic

training, held_out = logistic.digits()
problem = training.problem

# What the guarantee presumes: a loss that is convex with bounded curvature, steps that contract,
# gradients that one record moves by so much at most. `course` checks the last two as it runs.
print(f"curvature from {problem.regularisation} to {problem.smoothness}")
print(f"each step contracts by {training.contraction:g}")
print(f"a record moves its gradient by at most {problem.sensitivity:g}")
print(f"noise of {training.sigma} on each coordinate of a batch's mean gradient")
print(training.described(100))
print("| epochs | accuracy | last iterate: ε | every iterate: ε |")
# The seed makes the page reproducible. A release must not have one: use secure randomness.
for moment in logistic.course(training, held_out, np.random.default_rng(1)):
    print(
        f"| {moment.epochs} | {moment.accuracy:.3f} | {moment.last.upper:.2f} | "
        f"{moment.all.upper:.2f} |"
    )
