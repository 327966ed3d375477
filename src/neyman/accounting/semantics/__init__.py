"""What a guarantee means to people: findings and beliefs, and words for policy makers.

Public: `best_test` and `experiment` (best_test); `positive_predictive_value` and its kin (testing);
`posterior_ratio`, `posterior_ratios`, `posterior_chance` (bayes); `posterior_distance`
(statistical_distance); `post_processing`, `convexity`, `composition` (axioms); sentences (words),
and how their numbers are rounded (digits).
"""
