"""The connection engine: framing, buffers, flow control and settling, without I/O."""
