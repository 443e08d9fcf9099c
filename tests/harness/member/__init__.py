"""One member of a group in a process of its own, and what it tells of its life.

`__main__` is the process: it takes a `Spec` as JSON, consumes with the client library named in
it, and writes a JSON object a line for everything that happens. `handle` is the other side, in
the test: start, stop, kill, pause, and wait for what is told.
"""
