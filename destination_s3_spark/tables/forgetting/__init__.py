"""Forgetting of rows: what is asked (`wanted`), where it is (`search`), the files without it (`erasure`), and the course (`course`)."""
