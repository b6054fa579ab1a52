"""What is known of the cluster, kept up to date by two watches, and what quotas leave of it."""
