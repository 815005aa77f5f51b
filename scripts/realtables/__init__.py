"""Profiles tables that real engines wrote, and compares what comes out with what is known of them."""
