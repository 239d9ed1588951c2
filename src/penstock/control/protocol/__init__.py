"""Event-level models, in virtual time, of the theses' own runtimes: 004's add and ban protocol, 003's farm.

Spark needs neither (its batch boundary already is a consistent cut): the models prove the theses' rules and their
invariants, and give the policies a plant that is not a formula.
"""
