"""Publishers: presentation of a table's live files to readers that do not know its chain. A publisher never changes the table."""
