"""Publishers: a table's live files, shown to readers that do not know its chain.

Knows the chain's state and live files. Imports nothing else of `tables`. A publisher never changes the table.
"""
