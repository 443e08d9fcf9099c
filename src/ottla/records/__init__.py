"""Record batches (v2), their records and their compression; older message sets for reading."""
