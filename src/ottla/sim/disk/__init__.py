"""A disk that forgets what was not synced, fills up, fails and crashes."""
