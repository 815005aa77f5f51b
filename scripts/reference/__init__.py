"""Reference pages that are generated: the configuration from its models, the command line from its commands."""
