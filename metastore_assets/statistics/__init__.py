"""What is computed from columns. Pure: Arrow in, Arrow out; no Spark, no Dagster, no files.

A column's *frequencies* (its distinct values with their counts, sorted) are computed once per profile, exactly, and
everything else follows from them:

    types, leaves      classes of types; leaf columns of nested fields
    physical           between Arrow arrays and the numbers and bytes that are computed with
    blocks             values with their counts: what is computed of at a time
    counting, runs     value counts of a column that arrives in chunks, in blocks of ascending values
    frequencies        lists of exact frequencies, their sums, and what follows from them
    describe           from blocks of frequencies to one row of statistics, with the help of
      moments            sum, mean, deviation, skewness, kurtosis (power_sums: the exact sums)
      quantiles          t-digest and percentiles
      distinct           HyperLogLog and fingerprint (hashing: stable hashes)
      hidden             the same of values that must not be shown (keyed_hashing: under a key)
      prints             48 bits of each value, in which equal ones meet
      membership         filters that tell which values are not among some
      bounds             minimum and maximum of long values
    histogram          histograms on a dyadic lattice
    profile            all of that for one top-level column
    states             what merging needs of columns, as a table
    merge              states of disjoint rows, merged, all columns at once (extremes, sketches: some of them)
    told, naming       what states, or full lists, say of a column; under the name that it has now
    derive             states and statistics from a stored list
    spread, distances  what follows from how many values occur how often; how far two distributions lie apart
    column             one row of statistics (declared: what is said of each, in one place)
    tables, union      the Arrow tables of the files, with the typed union of values
    json               rows and values as JSON
    user_defined       statistics of users

How each number is defined, and from which source its formula is, stands in the module that computes it; what is stored
and what it is worth, in `column`.

Import what is needed from the modules; importing this package imports nothing heavy.
"""
