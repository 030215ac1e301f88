"""Commits: blocks of a table's chain that make staged files part of the table.

The package knows the chain, checkpoints, replays, files adopted from destination-s3 and repair. It never reads the content of a file. Of
`tables` it may import `publishers` and the layers below: it uses `publishers` to inform readers and `landing` for staged slices.
"""
