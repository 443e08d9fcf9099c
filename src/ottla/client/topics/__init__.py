"""Topics: create, list, describe, alter and delete; settings, offsets, leaders."""
