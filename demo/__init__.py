"""Demo for newcomers: a made-up shop's data, synced by the whole connector to a local S3 server."""
