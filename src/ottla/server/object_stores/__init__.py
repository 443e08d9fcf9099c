"""Object stores of the remote tier: a directory, or S3, Google Cloud Storage and Azure."""
