"""Private training: Dong, Roth and Su 2022; Bok, Su and Altschuler 2024."""
