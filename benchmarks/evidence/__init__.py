"""The claims of the documents, checked on data that nothing was tuned on: `make evidence`."""
