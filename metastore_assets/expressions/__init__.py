"""Predicates: parsed from SQL text or Arrow expressions, bound to a table's columns, and evaluated.

    sql_parser, arrow_parser  parsers of SQL text and of Arrow expressions
    unbound                   the result of a parser: columns have no types yet, literals are as written
    binding                   converts an unbound predicate to a predicate on the columns of one table
    predicates                bound predicates, one class per operator with its evaluators
    literals                  literals: conversion to the types of columns, and to SQL text
    row_filter                the rows of Arrow tables that match a predicate
    row_bounds                bounds on the numbers of matching rows, from statistics
    elimination               names of the statistics that prove that no row matches
    partition_condition       a predicate on partition columns, evaluated on partition keys
    partition_filter          the filter of a table's partitions: patterns or a condition
    partition_keys            encoding and decoding of partition keys
    partition_patterns        selection of partitions by keys and patterns
    wildcards                 patterns with `*`, `?` and `[…]`

Import names from the modules; importing this package imports nothing heavy.
"""
