"""Security settings, TLS and SASL."""
