"""Record lines to typed Arrow columns plus the list of what had to be changed."""
