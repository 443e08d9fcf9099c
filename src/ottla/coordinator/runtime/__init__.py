"""What coordinators of any kind have in common: shards, their logs, loading and failover."""
