"""What several tests share that need no real client and no process of their own."""
