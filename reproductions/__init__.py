"""Published data and results, made and reproduced.

Public: the people of five Midwestern states in 1990 (midwest); the 2020 Census by attribute
(census), its characteristics by level (dhc), and what their papers print (printed).
"""
