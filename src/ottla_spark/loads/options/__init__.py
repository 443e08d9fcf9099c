"""The options of a load, and the checks that need nothing but the options."""
