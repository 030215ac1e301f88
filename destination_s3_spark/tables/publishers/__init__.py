"""Publishers: presentation of a table's live files to readers that do not know its chain.

The package knows the chain's state and live files. A publisher never changes the table. Of `tables` it may import `landing` and the layers
below, but it uses none of them.
"""
