"""Tables by their names in catalogs."""
