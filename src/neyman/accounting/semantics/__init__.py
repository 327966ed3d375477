"""Interpret a guarantee for people: test results, beliefs, and sentences for policy makers.

Public: `best_test` and `experiment` (best_test); `positive_predictive_value` (testing);
`posterior_ratio`, `posterior_ratios`, `posterior_chance`, `membership_success` (bayes);
`posterior_distance` (statistical_distance); `post_processing`, `convexity`, `composition` (axioms);
sentences (sentences), and the rounding of their numbers (digits).
"""
