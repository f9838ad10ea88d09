"""The claims of the documents, checked on data that was not used for tuning: `make evidence`."""
