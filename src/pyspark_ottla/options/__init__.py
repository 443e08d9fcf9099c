"""The options of reads and writes. They are parsed once, on the driver, into plain data."""
