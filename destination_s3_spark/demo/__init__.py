"""A shop's data, sent through the whole connector to an S3 server on this machine: what a newcomer sees first."""
