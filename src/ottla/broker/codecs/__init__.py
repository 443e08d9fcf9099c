"""Codecs written by hand for the requests that come most often."""
