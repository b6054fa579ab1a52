"""Do the tests notice a changed line? ``make mutants`` changes one at a time and runs its room's.

`operators` lists every small change of a file, `trees` tries one in a copy of the checkout,
`__main__` chooses some by a seed and reports. ``equal.json`` has those that change nothing which
anybody could see, each with the reason.

mutmut and cosmic-ray know Python alone and no sample by a seed; universalmutator changes text by
patterns, comments and messages too. mull needs clang.
"""
