"""The controller: decides about topics, settings and ids by writing metadata records."""
