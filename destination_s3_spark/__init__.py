"""Airbyte destination: any source as typed, self-describing tables on plain S3, with Spark as the engine."""
