"""The stored state of a Metastore: objects, version documents, entries, and segment sets."""
