"""Sub-commands of `loadmaster` that need more than a training node has; each module's `main` is an entry point."""
