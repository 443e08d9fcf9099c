"""The broker that serves production, under virtual time, seeded chance and a disk that fails."""
