"""Predicates: one tree, parsed from SQL text or Arrow expressions, bound to the types of columns, and evaluated.

    sql, arrow       parsers of SQL text and of Arrow expressions
    syntax           what they return: columns have no types yet, literals are as written
    typed            binds a syntax tree to the columns of a table; the result is a `tree`
    tree             typed predicates without negations
    like, literals   patterns of `like`, and values of columns from Python objects and from text
    rows             evaluator: the rows of a table of which a predicate is true
    partitions       evaluator: partitions, by those of their values that are known
    counts           evaluator: least and greatest number of rows in a fragment, from bounds
    reasons          which statistic ruled out a fragment
    text             a predicate as SQL text

Import what is needed from the modules: the configuration imports `sql`, which loads neither Arrow's kernels nor
statistics.
"""
