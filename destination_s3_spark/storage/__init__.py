"""Access to S3: client, object store, staged uploads, paths, credentials and endpoint rules."""
