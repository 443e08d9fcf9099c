"""Coordinators: state machines whose every change is a record in an internal topic."""
