"""One module per API: `handle(node, request, context)` gives the response."""
