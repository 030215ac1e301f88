"""S3: the client, staged uploads, paths, credentials, endpoint rules."""
