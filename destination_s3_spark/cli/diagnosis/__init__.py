"""Diagnosis of a configuration and of this machine: findings as frozen dataclasses without any layout.

Each module looks at one thing and yields its findings as they come, because some take seconds.
"""
