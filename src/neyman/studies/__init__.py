"""Published data and results, made and reproduced.

Public: the people of five Midwestern states in 1990 (midwest).
"""
