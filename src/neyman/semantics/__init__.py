"""What a guarantee means to people: findings and their posteriors, and words for policy makers.

Public: `positive_predictive_value` and its kin (testing); sentences, and their rounding (words).
"""
