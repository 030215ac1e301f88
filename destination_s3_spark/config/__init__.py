"""The configuration: its options as models, and the spec made of them."""
