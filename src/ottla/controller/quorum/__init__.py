"""This node's part in the metadata quorum: the Raft state machine, driven on disk and network."""
