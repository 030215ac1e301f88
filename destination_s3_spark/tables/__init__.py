"""Tables on S3: landing rows, committing them, reading them."""
