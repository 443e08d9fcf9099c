"""The group coordinator: classic groups, groups of KIP-848, and committed offsets."""
