"""Updates of tables: which one a table needs (`choice`), and the course of each kind, from its input files to its commit."""
