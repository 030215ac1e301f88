"""Updates of tables: which one a table needs (`choice`), and the course of each kind, from its input files to its commit.

`appended`, `merged` and `compacted` each plan an update, give its tasks to Spark as `steps`, and commit what the tasks have staged.
`sync.update_runner` runs them, and the commands do so through it.
"""
