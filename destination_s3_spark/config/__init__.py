"""Configuration: its options as pydantic models, and the spec generated from them."""
