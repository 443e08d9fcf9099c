"""The kinds of table a load writes, each with a commit that knows the batches it holds."""
